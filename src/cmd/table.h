// SPDX-License-Identifier: MPL-2.0
/* Tables for people: columns as wide as their widest cell, numbers to the right. */
#ifndef HOLDFAST_CMD_TABLE_H
#define HOLDFAST_CMD_TABLE_H

#include <jansson.h>
#include <stdint.h>

struct table;

/* "NAME", ">SIZE": '>' sets a column to the right. NULL ends the list. */
struct table *table_new(const char *const *heads);
/* Cells are filled from left to right, row after row. */
void table_text(struct table *table, const char *text); /* NULL or empty: "-" */
void table_size(struct table *table, uint64_t bytes);
void table_number(struct table *table, uint64_t number);
/* A member of an object: text, or size. */
void table_json_text(struct table *table, const json_t *object, const char *key);
void table_json_size(struct table *table, const json_t *object, const char *key);
void table_json_number(struct table *table, const json_t *object, const char *key);
/* Prints to stdout, or `empty` when there are no rows; frees. */
void table_print(struct table *table, const char *empty);

#endif
