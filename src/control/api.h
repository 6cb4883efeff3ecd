// SPDX-License-Identifier: MPL-2.0
/* The handlers behind the routes: a request in, one JSON object out. */
#ifndef HOLDFAST_CONTROL_API_H
#define HOLDFAST_CONTROL_API_H

#include "control/routes.h"
#include "control/serve.h"

/* Any thread that may wait. On success the status and the answer (the caller's to json_decref). */
HF_MUST_CHECK int api_answer(struct serve *serve, const char *method, const char *path,
                             const char *body, size_t length, unsigned *ret_status,
                             json_t **ret_answer, struct errmsg *reterr);

typedef int api_fn(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                   struct errmsg *reterr);

/* api_pool.c */
api_fn api_pools, api_pool_create, api_pool_status, api_pool_destroy, api_pool_import,
    api_pool_export, api_pool_scrub, api_importable;
/* The pool as `pool status` shows it. */
json_t *api_pool_json(const struct served_view *view);
const char *api_pool_health(const struct served_view *view, char *ret_advice, size_t advice_bytes);

/* api_disk.c */
api_fn api_disk_add, api_disk_replace, api_disk_remove, api_disk_keep, api_disk_return;
const char *api_disk_role(const struct engine_disk_status *disk);

/* api_volume.c */
api_fn api_volumes, api_volume, api_volume_create, api_volume_resize, api_volume_delete;
api_fn api_volume_profile, api_volume_reorder;

/* api_lun.c */
api_fn api_luns, api_lun_create, api_lun_delete, api_lun_map, api_lun_unmap;

/* api_chap.c */
api_fn api_chap_list, api_chap_set, api_chap_delete;

/* api_config.c */
api_fn api_config;

/* api_bench.c */
api_fn api_bench_start, api_bench, api_bench_stop;

/* api_counters.c */
api_fn api_counters;

/* A uuid in its usual form; `text` holds 37 characters. */
/* Its progress and its report; volumes by name. */
json_t *api_scrub_json(const struct served_snapshot *snapshot);
/* "in sync", "suspect" (in sync, but slower than its peers), "missing". */
const char *api_disk_state(const struct engine_disk_status *disk);
void api_uuid_text(const struct uuid *uuid, char ret_text[37]);

#endif
