// SPDX-License-Identifier: MPL-2.0
#include "cmd/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum { COLUMNS_MAX = 12 };

struct table {
    uint32_t columns;
    const char *heads[COLUMNS_MAX];
    char **cells;
    size_t count;
};

struct table *table_new(const char *const *heads) {
    struct table *table = MEM_NEW(struct table);
    while (table->columns < COLUMNS_MAX && heads[table->columns] != NULL) {
        table->heads[table->columns] = heads[table->columns];
        table->columns++;
    }
    return table;
}

void table_text(struct table *table, const char *text) {
    table->cells = mem_realloc(table->cells, (table->count + 1) * sizeof(table->cells[0]));
    char *cell = mem_strdup(text == NULL || text[0] == '\0' ? "-" : text);
    for (char *c = cell; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?'; /* names come from devices; terminals obey control characters */
        }
    }
    table->cells[table->count++] = cell;
}

void table_size(struct table *table, uint64_t bytes) {
    char text[24];
    size_format(bytes, text, sizeof(text));
    table_text(table, text);
}

void table_number(struct table *table, uint64_t number) {
    char text[24];
    (void)snprintf(text, sizeof(text), "%" PRIu64, number);
    table_text(table, text);
}

void table_json_text(struct table *table, const json_t *object, const char *key) {
    table_text(table, json_string_value(json_object_get(object, key)));
}

void table_json_size(struct table *table, const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (value == NULL) {
        table_text(table, NULL);
    } else {
        table_size(table, (uint64_t)json_integer_value(value));
    }
}

void table_json_number(struct table *table, const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (value == NULL) {
        table_text(table, NULL);
    } else {
        table_number(table, (uint64_t)json_integer_value(value));
    }
}

/* Characters, not bytes. */
static int width_of(const char *text) {
    int width = 0;
    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return width;
}

static void print_cell(const char *text, int width, int right, int last) {
    int pad = width - width_of(text);
    if (right) {
        (void)printf("%*s%s", pad, "", text);
    } else if (last) {
        (void)printf("%s", text);
    } else {
        (void)printf("%s%*s", text, pad, "");
    }
    (void)printf("%s", last ? "\n" : "  ");
}

void table_print(struct table *table, const char *empty) {
    int widths[COLUMNS_MAX] = {0};
    for (uint32_t c = 0; c < table->columns; c++) {
        widths[c] = width_of(table->heads[c]) - (table->heads[c][0] == '>');
    }
    for (size_t i = 0; i < table->count; i++) {
        int width = width_of(table->cells[i]);
        int *widest = &widths[i % table->columns];
        *widest = width > *widest ? width : *widest;
    }
    if (table->count == 0) {
        (void)printf("%s\n", empty);
    } else {
        for (uint32_t c = 0; c < table->columns; c++) {
            int right = table->heads[c][0] == '>';
            print_cell(table->heads[c] + right, widths[c], right, c + 1 == table->columns);
        }
    }
    for (size_t i = 0; i < table->count; i++) {
        uint32_t c = (uint32_t)(i % table->columns);
        print_cell(table->cells[i], widths[c], table->heads[c][0] == '>', c + 1 == table->columns);
        mem_free(table->cells[i]);
    }
    mem_free(table->cells);
    mem_free(table);
}
