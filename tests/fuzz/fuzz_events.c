// SPDX-License-Identifier: MPL-2.0
/* The file of events, which a crash may have cut anywhere: whatever it holds, what is listed of it
 * are events as people and programs are promised them, in order. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "control/event.h"

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

static void check(const json_t *event, json_int_t *last) {
    static const char *const texts[] = {"time", "severity", "kind", "pool", "text", "advice"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *text = json_string_value(json_object_get(event, texts[i]));
        require(text != NULL || (i == 3 && json_is_null(json_object_get(event, texts[i]))));
        for (const char *c = text; c != NULL && *c != '\0'; c++) {
            require((unsigned char)*c >= 0x20 && *c != 0x7f);
        }
    }
    enum event_severity severity;
    require(event_severity_parse(json_string_value(json_object_get(event, "severity")), &severity));
    json_int_t number = json_integer_value(json_object_get(event, "number"));
    require(number > *last);
    *last = number;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    event_recall((const char *)data, bytes);
    const struct event_filter all = {0};
    json_t *events = event_list(&all, 0), *event;
    json_int_t last = 0;
    size_t index;
    json_array_foreach(events, index, event) {
        check(event, &last);
    }
    require((uint64_t)last <= event_last());
    json_decref(events);
    return 0;
}
