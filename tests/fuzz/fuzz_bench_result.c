// SPDX-License-Identifier: MPL-2.0
/* Results of measurements: what is accepted, written, and accepted again (buckets closer than a
 * nanosecond are not) is the same. */
#include <stdlib.h>

#include "bench/result.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    json_t *json = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, NULL);
    struct bench_document first = {0}, second = {0};
    if (json != NULL && bench_document_from_json(json, &first, NULL) == OK) {
        json_t *once = bench_document_json(&first);
        if (bench_document_from_json(once, &second, NULL) == OK) {
            json_t *twice = bench_document_json(&second);
            if (!json_equal(once, twice)) {
                abort();
            }
            json_decref(twice);
            bench_document_done(&second);
        }
        json_decref(once);
        bench_document_done(&first);
    }
    json_decref(json);
    return 0;
}
