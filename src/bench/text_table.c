// SPDX-License-Identifier: MPL-2.0
#include "bench/text_table.h"

#include <stdarg.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "bench/report.h"

struct text_table {
    uint32_t columns, count;
    char **cells;
};

struct text_table *text_table_new(uint32_t columns) {
    struct text_table *table = MEM_NEW(struct text_table);
    table->columns = columns;
    return table;
}

void text_table_add(struct text_table *table, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    table->cells = mem_realloc(table->cells, (table->count + 1) * sizeof(table->cells[0]));
    table->cells[table->count++] = mem_strdup(text);
}

/* Characters, not bytes, of UTF-8. */
static uint32_t width_of(const char *text) {
    uint32_t width = 0;
    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return width;
}

static void pad(FILE *out, uint32_t count) {
    for (; count > 0; count--) {
        (void)fputc(' ', out);
    }
}

static void plain_row(FILE *out, const struct text_table *table, uint32_t row,
                      const uint32_t *widths) {
    for (uint32_t c = 0; c < table->columns; c++) {
        const char *text = table->cells[row * table->columns + c];
        uint32_t space = widths[c] - width_of(text);
        pad(out, c > 0 ? space + 2 : 0);
        put_plain(out, text);
        pad(out, c == 0 && table->columns > 1 ? space : 0);
    }
    (void)fputc('\n', out);
}

static void markdown_row(FILE *out, const struct text_table *table, uint32_t row) {
    for (uint32_t c = 0; c < table->columns; c++) {
        (void)fputs("| ", out);
        put_markdown(out, table->cells[row * table->columns + c]);
        (void)fputc(' ', out);
    }
    (void)fputs("|\n", out);
    for (uint32_t c = 0; row == 0 && c < table->columns; c++) {
        (void)fputs(c == 0 ? "|---" : "|---:", out);
    }
    (void)fputs(row == 0 ? "|\n" : "", out);
}

void text_table_print(struct text_table *table, FILE *out, bool markdown) {
    uint32_t *widths = MEM_NEW_ARRAY(uint32_t, table->columns);
    uint32_t rows = table->count / table->columns;
    for (uint32_t i = 0; i < rows * table->columns; i++) {
        widths[i % table->columns] = MAX(widths[i % table->columns], width_of(table->cells[i]));
    }
    for (uint32_t row = 0; row < rows; row++) {
        if (markdown) {
            markdown_row(out, table, row);
        } else {
            plain_row(out, table, row, widths);
        }
    }
    for (uint32_t i = 0; i < table->count; i++) {
        mem_free(table->cells[i]);
    }
    mem_free(table->cells);
    mem_free(table);
    mem_free(widths);
}
