// SPDX-License-Identifier: MPL-2.0
#include "volume/volume.h"

#include "base/list.h"

static void door_arrived(struct env_task *task) {
    struct volume_request *request = CONTAINER_OF(task, struct volume_request, task);
    request->door->dispatch(request->door, request);
}

static void door_answered(struct env_task *task) {
    struct volume_request *request = CONTAINER_OF(task, struct volume_request, task);
    request->done(request);
}

void volume_submit(struct volume_request *request) {
    request->status = OK;
    request->error_bytes = 0;
    request->task.run = door_arrived;
    env_post(request->door->env, &request->task);
}

void volume_complete(struct volume_request *request, int status) {
    request->status = status;
    request->task.run = door_answered;
    env_post(request->client, &request->task);
}
