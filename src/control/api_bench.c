// SPDX-License-Identifier: MPL-2.0
/* Measurements of volumes inside the service. */
#include "control/api.h"
#include "control/measure.h"

static int answer(struct serve *serve, json_t **ret_answer, struct errmsg *reterr) {
    return measure_look(serve_measure(serve), ret_answer, reterr);
}

int api_bench_start(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                    struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    int error = measure_start(serve_measure(serve), served, request->name, request->body, reterr);
    served_unref(served);
    return error == OK ? answer(serve, ret_answer, reterr) : error;
}

int api_bench(struct serve *serve, const struct api_request *request, json_t **ret_answer,
              struct errmsg *reterr) {
    (void)request;
    return answer(serve, ret_answer, reterr);
}

int api_bench_stop(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                   struct errmsg *reterr) {
    (void)request;
    int error = measure_stop(serve_measure(serve), reterr);
    return error == OK ? answer(serve, ret_answer, reterr) : error;
}
