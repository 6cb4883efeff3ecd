// SPDX-License-Identifier: MPL-2.0
/* What the verbs do. Each prints to stdout and returns OK or an error with a sentence. */
#ifndef HOLDFAST_CMD_COMMANDS_H
#define HOLDFAST_CMD_COMMANDS_H

#include "cmd/verbs.h"

verb_fn cmd_serve, cmd_check, cmd_version, cmd_help, cmd_completion, cmd_health, cmd_events,
    cmd_top;
verb_fn cmd_pool_create, cmd_pool_import, cmd_pool_scrub, cmd_pool_export, cmd_pool_status,
    cmd_pool_list, cmd_pool_destroy;
verb_fn cmd_volume_create, cmd_volume_list, cmd_volume_resize, cmd_volume_delete;
verb_fn cmd_volume_set, cmd_volume_reorder;
verb_fn cmd_lun_create, cmd_lun_list, cmd_lun_delete, cmd_lun_map, cmd_lun_unmap, cmd_lun_sessions;
verb_fn cmd_chap_set, cmd_chap_list, cmd_chap_delete;
verb_fn cmd_config_export, cmd_config_import;
verb_fn cmd_disk_list, cmd_disk_add, cmd_disk_spare, cmd_disk_replace, cmd_disk_remove,
    cmd_disk_return, cmd_disk_locate;
verb_fn cmd_bench, cmd_bench_job;
verb_fn cmd_bench_model, cmd_bench_compare, cmd_bench_report;

#endif
