// SPDX-License-Identifier: MPL-2.0
#include "codec/parity.h"

#include <isa-l/erasure_code.h>
#include <isa-l/raid.h>
#include <string.h>

#include "base/assert.h"

/* Row 0 of the generator matrix is all ones (P), row 1 the powers of 2 (Q). */
static void generator_row(uint32_t row, uint32_t data, uint8_t *ret_row) {
    uint8_t power = 1;
    for (uint32_t i = 0; i < data; i++) {
        ret_row[i] = row == 0 ? 1 : power;
        power = gf_mul(power, 2);
    }
}

void parity_generate(uint32_t data, uint32_t parity, size_t bytes, void *const *columns) {
    ASSERT(parity >= 1 && parity <= 2 && data >= 1 && data + parity <= PARITY_COLUMNS_MAX);
    if (data == 1) { /* ISA-L's routines want two sources; P and Q of one column are the column */
        for (uint32_t p = 0; p < parity; p++) {
            memcpy(columns[1 + p], columns[0], bytes);
        }
        return;
    }
    void *array[PARITY_COLUMNS_MAX];
    memcpy(array, columns, sizeof(void *) * (data + parity));
    int failed = parity == 1 ? xor_gen((int)data + 1, (int)bytes, array)
                             : pq_gen((int)data + 2, (int)bytes, array);
    ASSERT_EQ(failed, 0);
}

int parity_reconstruct(uint32_t data, uint32_t parity, size_t bytes, void *const *columns,
                       uint64_t missing) {
    uint32_t total = data + parity;
    ASSERT(parity <= 2 && data >= 1 && total <= PARITY_COLUMNS_MAX);
    if ((uint32_t)__builtin_popcountll(missing) > parity) {
        return ERR_DATA_LOSS;
    }
    /* The first `data` surviving columns, as rows of the generator matrix. */
    uint8_t matrix[PARITY_COLUMNS_MAX * PARITY_COLUMNS_MAX] = {0};
    uint8_t inverse[PARITY_COLUMNS_MAX * PARITY_COLUMNS_MAX];
    unsigned char *sources[PARITY_COLUMNS_MAX];
    uint32_t used = 0;
    for (uint32_t c = 0; c < total && used < data; c++) {
        if ((missing >> c) & 1) {
            continue;
        }
        uint8_t *row = &matrix[used * data];
        if (c < data) {
            row[c] = 1;
        } else {
            generator_row(c - data, data, row);
        }
        sources[used++] = columns[c];
    }
    ASSERT_EQ(used, data);
    if (gf_invert_matrix(matrix, inverse, (int)data) != 0) {
        return ERR_DATA_LOSS;
    }
    uint8_t coefficients[2 * PARITY_COLUMNS_MAX];
    unsigned char *targets[2];
    int target_count = 0;
    for (uint32_t c = 0; c < total; c++) {
        if (!((missing >> c) & 1)) {
            continue;
        }
        uint8_t *out = &coefficients[(uint32_t)target_count * data];
        if (c < data) {
            memcpy(out, &inverse[c * data], data);
        } else {
            uint8_t generator[PARITY_COLUMNS_MAX];
            generator_row(c - data, data, generator);
            for (uint32_t j = 0; j < data; j++) {
                out[j] = 0;
                for (uint32_t k = 0; k < data; k++) {
                    out[j] ^= gf_mul(generator[k], inverse[k * data + j]);
                }
            }
        }
        targets[target_count++] = columns[c];
    }
    if (target_count > 0) {
        uint8_t tables[32 * 2 * PARITY_COLUMNS_MAX];
        ec_init_tables((int)data, target_count, coefficients, tables);
        ec_encode_data((int)bytes, (int)data, target_count, tables, sources, targets);
    }
    return OK;
}
