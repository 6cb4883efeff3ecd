// SPDX-License-Identifier: MPL-2.0
#include "fake_engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/math.h"
#include "base/mem.h"
#include "engine/engine.h"

enum { PIECE_BYTES = 64 << 10, VOLUMES_MAX = 64, RECORDS_MAX = 256 };

struct volume {
    struct volume_info info;
    uint8_t **pieces; /* NULL: reads as zeroes */
};

struct record {
    char kind[CONFIG_KIND_MAX + 1], id[CONFIG_ID_MAX + 1];
    uint8_t *blob;
    uint32_t bytes;
};

struct engine {
    struct list link;
    char name[64];
    char paths[POOL_DISKS_MAX][256];
    enum member_role roles[POOL_DISKS_MAX];
    bool removed[POOL_DISKS_MAX];
    uint32_t path_count;
    bool imported;
    struct env *env;
    struct volume_door door;
    struct volume *volumes[VOLUMES_MAX];
    uint32_t volume_count;
    struct record records[RECORDS_MAX];
    uint32_t record_count;
    uint64_t next_id;
};

struct fake_engine_faults fake_engine_faults;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static struct list engines = {&engines, &engines};

static struct engine *find_engine(const char *name) {
    LIST_FOR_EACH(it, &engines) {
        struct engine *engine = CONTAINER_OF(it, struct engine, link);
        if (strcmp(engine->name, name) == 0) {
            return engine;
        }
    }
    return NULL;
}

static void volume_free(struct volume *volume) {
    for (uint64_t i = 0; i < volume->info.size_bytes / PIECE_BYTES + 1; i++) {
        mem_free(volume->pieces[i]);
    }
    mem_free(volume->pieces);
    mem_free(volume);
}

void fake_engine_forget(void) {
    pthread_mutex_lock(&lock);
    struct list *it;
    while ((it = list_pop(&engines)) != NULL) {
        struct engine *engine = CONTAINER_OF(it, struct engine, link);
        ASSERT(!engine->imported);
        for (uint32_t i = 0; i < engine->volume_count; i++) {
            volume_free(engine->volumes[i]);
        }
        for (uint32_t i = 0; i < engine->record_count; i++) {
            mem_free(engine->records[i].blob);
        }
        mem_free(engine);
    }
    pthread_mutex_unlock(&lock);
}

static void dawdle(struct engine *engine) {
    unsigned ms = atomic_load(&fake_engine_faults.change_ms);
    if (ms > 0) {
        fiber_sleep_until(env_now_ns(engine->env) + (uint64_t)ms * NS_PER_MS);
    }
}

/* ---- life ---- */

int engine_create_pool(struct env *env, const struct pool_options *options, struct errmsg *reterr) {
    (void)env;
    for (uint32_t i = 0; i < options->path_count; i++) {
        if (access(options->paths[i], R_OK | W_OK) != 0) {
            return errmsg_set(reterr, ERR_NOT_FOUND, "%s does not exist", options->paths[i]);
        }
    }
    pthread_mutex_lock(&lock);
    struct engine *old = find_engine(options->name);
    if (old != NULL) {
        pthread_mutex_unlock(&lock);
        return errmsg_set(reterr, ERR_EXISTS, "the disks hold pool %s", options->name);
    }
    struct engine *engine = MEM_NEW(struct engine);
    (void)snprintf(engine->name, sizeof(engine->name), "%s", options->name);
    engine->path_count = options->path_count;
    for (uint32_t i = 0; i < options->path_count; i++) {
        (void)snprintf(engine->paths[i], sizeof(engine->paths[i]), "%s", options->paths[i]);
    }
    engine->next_id = 1;
    list_append(&engines, &engine->link);
    pthread_mutex_unlock(&lock);
    return OK;
}

static void dispatch(struct volume_door *door, struct volume_request *request);

int engine_import(struct env *env, const struct engine_import_options *options,
                  engine_progress_fn *progress, void *progress_owner, struct engine **ret_engine,
                  struct errmsg *reterr) {
    int error = atomic_load(&fake_engine_faults.import_error);
    if (progress != NULL) {
        progress(progress_owner, "looking at the disks", 0);
        progress(progress_owner, "replaying the log", 50);
    }
    if (error != OK) {
        return errmsg_set(reterr, error, "pool %s: the fake engine refuses", options->pool.name);
    }
    pthread_mutex_lock(&lock);
    struct engine *engine = find_engine(options->pool.name);
    if (engine == NULL || engine->imported) {
        pthread_mutex_unlock(&lock);
        return errmsg_set(reterr, engine == NULL ? ERR_NOT_FOUND : ERR_BUSY, "pool %s is not there",
                          options->pool.name);
    }
    engine->imported = true;
    engine->env = env;
    engine->door = (struct volume_door){.env = env, .dispatch = dispatch};
    pthread_mutex_unlock(&lock);
    *ret_engine = engine;
    return OK;
}

int engine_close(struct engine *engine, bool exported, uint64_t deadline_ns,
                 struct errmsg *reterr) {
    int error = atomic_load(&fake_engine_faults.close_error);
    (void)exported;
    (void)deadline_ns;
    pthread_mutex_lock(&lock);
    engine->imported = false;
    pthread_mutex_unlock(&lock);
    return error == OK ? OK : errmsg_set(reterr, error, "the last checkpoint failed");
}

struct volume_door *engine_door(struct engine *engine) {
    return &engine->door;
}

int engine_checkpoint(struct engine *engine) {
    (void)engine;
    return OK;
}

/* ---- volumes ---- */

static struct volume *find_volume(struct engine *engine, const char *name) {
    for (uint32_t i = 0; i < engine->volume_count; i++) {
        if (strcmp(engine->volumes[i]->info.name, name) == 0) {
            return engine->volumes[i];
        }
    }
    return NULL;
}

int engine_volume_create(struct engine *engine, const struct volume_options *options,
                         uint64_t *ret_id, struct errmsg *reterr) {
    int error = atomic_load(&fake_engine_faults.change_error);
    dawdle(engine);
    if (error != OK) {
        return errmsg_set(reterr, error, "the fake engine refuses");
    }
    if (find_volume(engine, options->name) != NULL) {
        return errmsg_set(reterr, ERR_EXISTS, "there is a volume %s", options->name);
    }
    if (engine->path_count < profile_min_disks(options->profile)) {
        return errmsg_set(reterr, ERR_INVALID, "%s needs %u disks", profile_name(options->profile),
                          profile_min_disks(options->profile));
    }
    ASSERT(engine->volume_count < VOLUMES_MAX);
    struct volume *volume = MEM_NEW(struct volume);
    (void)snprintf(volume->info.name, sizeof(volume->info.name), "%s", options->name);
    volume->info.id = engine->next_id++;
    env_random(engine->env, &volume->info.uuid, sizeof(volume->info.uuid));
    volume->info.size_bytes = round_up(options->size_bytes, 4096);
    volume->info.block_bytes = options->block_bytes == 0 ? 512 : options->block_bytes;
    volume->info.profile = options->profile;
    volume->info.thick = options->thick;
    volume->info.sync_always = !options->sync_standard;
    volume->pieces = MEM_NEW_ARRAY(uint8_t *, volume->info.size_bytes / PIECE_BYTES + 1);
    engine->volumes[engine->volume_count++] = volume;
    *ret_id = volume->info.id;
    return OK;
}

int engine_volume_delete(struct engine *engine, const char *name, struct errmsg *reterr) {
    for (uint32_t i = 0; i < engine->volume_count; i++) {
        if (strcmp(engine->volumes[i]->info.name, name) == 0) {
            volume_free(engine->volumes[i]);
            engine->volumes[i] = engine->volumes[--engine->volume_count];
            return OK;
        }
    }
    return errmsg_set(reterr, ERR_NOT_FOUND, "there is no volume %s", name);
}

int engine_volume_set_profile(struct engine *engine, const char *name, enum profile profile,
                              bool dry_run, struct engine_profile_change *ret_change,
                              struct errmsg *reterr) {
    struct volume *volume = find_volume(engine, name);
    if (volume == NULL) {
        return errmsg_set(reterr, ERR_NOT_FOUND, "there is no volume %s", name);
    }
    *ret_change = (struct engine_profile_change){.from = volume->info.profile, .to = profile};
    volume->info.profile = dry_run ? volume->info.profile : profile;
    return OK;
}

int engine_volume_reorder(struct engine *engine, const char *name, bool stop,
                          struct errmsg *reterr) {
    struct volume *volume = find_volume(engine, name);
    if (volume == NULL) {
        return errmsg_set(reterr, ERR_NOT_FOUND, "there is no volume %s", name);
    }
    volume->info.reordering = !stop;
    return OK;
}

int engine_volume_resize(struct engine *engine, const char *name, uint64_t size_bytes,
                         struct errmsg *reterr) {
    struct volume *volume = find_volume(engine, name);
    if (volume == NULL) {
        return errmsg_set(reterr, ERR_NOT_FOUND, "there is no volume %s", name);
    }
    if (size_bytes < volume->info.size_bytes) {
        return errmsg_set(reterr, ERR_INVALID, "volume %s would shrink", name);
    }
    uint64_t old = volume->info.size_bytes / PIECE_BYTES + 1, new = size_bytes / PIECE_BYTES + 1;
    volume->pieces = mem_realloc(volume->pieces, new * sizeof(uint8_t *));
    memset(volume->pieces + old, 0, (new - old) * sizeof(uint8_t *));
    volume->info.size_bytes = round_up(size_bytes, 4096);
    return OK;
}

void engine_volume_list(struct engine *engine, struct volume_info **ret_volumes,
                        uint32_t *ret_count) {
    *ret_volumes = MEM_NEW_ARRAY(struct volume_info, engine->volume_count + 1);
    *ret_count = engine->volume_count;
    for (uint32_t i = 0; i < engine->volume_count; i++) {
        (*ret_volumes)[i] = engine->volumes[i]->info;
        (*ret_volumes)[i].health =
            (enum volume_health)atomic_load(&fake_engine_faults.volume_health);
    }
}

int engine_volume_find(struct engine *engine, const char *name, struct volume_info *ret_volume) {
    struct volume *volume = find_volume(engine, name);
    if (volume == NULL) {
        return ERR_NOT_FOUND;
    }
    *ret_volume = volume->info;
    return OK;
}

/* ---- requests ---- */

static void put(uint8_t *to, const uint8_t *from, size_t bytes) {
    if (from != NULL) {
        memcpy(to, from, bytes);
    } else {
        memset(to, 0, bytes);
    }
}

/* One iovec's bytes (NULL: zeroes) at `at`. */
static void transfer(struct volume *volume, bool write, uint64_t at, uint8_t *bytes,
                     size_t length) {
    while (length > 0) {
        uint64_t index = at / PIECE_BYTES, offset = at % PIECE_BYTES;
        size_t step = length < PIECE_BYTES - offset ? length : PIECE_BYTES - offset;
        if (write && volume->pieces[index] == NULL && bytes != NULL) {
            volume->pieces[index] = mem_alloc(PIECE_BYTES);
            volume->info.allocated_bytes += PIECE_BYTES;
        }
        uint8_t *piece = volume->pieces[index] == NULL ? NULL : volume->pieces[index] + offset;
        if (!write) {
            put(bytes, piece, step);
        } else if (piece != NULL) {
            put(piece, bytes, step);
        }
        bytes = bytes == NULL ? NULL : bytes + step;
        at += step;
        length -= step;
    }
}

static int serve_request(struct volume *volume, struct volume_request *request) {
    uint64_t at = request->offset_bytes;
    if (at > volume->info.size_bytes || request->length_bytes > volume->info.size_bytes - at) {
        return ERR_RANGE;
    }
    switch (request->op) {
    case VOLUME_READ:
    case VOLUME_WRITE:
        for (uint32_t i = 0; i < request->iov_count; i++) {
            transfer(volume, request->op == VOLUME_WRITE, at, request->iov[i].iov_base,
                     request->iov[i].iov_len);
            at += request->iov[i].iov_len;
        }
        return OK;
    case VOLUME_UNMAP:
    case VOLUME_WRITE_ZEROES:
        transfer(volume, true, at, NULL, request->length_bytes);
        return OK;
    case VOLUME_FLUSH:
    case VOLUME_VERIFY:
        return OK;
    default:
        return ERR_UNSUPPORTED;
    }
}

static void recall(void *ctx, const char *kind, const char *id, const void *blob, uint32_t bytes) {
    struct volume_request *request = ctx;
    (void)kind;
    if (strtoull(id, NULL, 10) == request->volume_id) {
        memcpy(request->iov[0].iov_base, blob, bytes);
    }
}

/* What a front end keeps beside a volume: one iovec. */
static int serve_record(struct engine *engine, struct volume_request *request) {
    char id[24];
    (void)snprintf(id, sizeof(id), "%llu", (unsigned long long)request->volume_id);
    if (request->op == VOLUME_RECALL) {
        memset(request->iov[0].iov_base, 0, request->iov[0].iov_len);
        engine_config_each(engine, VOLUME_RECORD_KIND, recall, request);
        return OK;
    }
    if (request->length_bytes == 0) {
        (void)!engine_config_delete(engine, VOLUME_RECORD_KIND, id, NULL);
        return OK;
    }
    return engine_config_set(engine, VOLUME_RECORD_KIND, id, request->iov[0].iov_base,
                             (uint32_t)request->length_bytes, NULL);
}

static void dispatch(struct volume_door *door, struct volume_request *request) {
    struct engine *engine = CONTAINER_OF(door, struct engine, door);
    int status = engine->imported ? ERR_NOT_FOUND : ERR_SHUTDOWN;
    if (engine->imported && (request->op == VOLUME_KEEP || request->op == VOLUME_RECALL)) {
        volume_complete(request, serve_record(engine, request));
        return;
    }
    for (uint32_t i = 0; engine->imported && i < engine->volume_count; i++) {
        if (engine->volumes[i]->info.id == request->volume_id) {
            status = serve_request(engine->volumes[i], request);
        }
    }
    volume_complete(request, status);
}

/* ---- records ---- */

int engine_config_delete(struct engine *engine, const char *kind, const char *id,
                         struct errmsg *reterr) {
    for (uint32_t i = 0; i < engine->record_count; i++) {
        struct record *record = &engine->records[i];
        if (strcmp(record->kind, kind) == 0 && strcmp(record->id, id) == 0) {
            mem_free(record->blob);
            memmove(record, record + 1,
                    (engine->record_count - i - 1) * sizeof(engine->records[0]));
            engine->record_count--;
            return OK;
        }
    }
    return errmsg_set(reterr, ERR_NOT_FOUND, "there is no %s %s", kind, id);
}

int engine_config_set(struct engine *engine, const char *kind, const char *id, const void *blob,
                      uint32_t bytes, struct errmsg *reterr) {
    int error = atomic_load(&fake_engine_faults.change_error);
    dawdle(engine);
    if (error != OK) {
        return errmsg_set(reterr, error, "the fake engine refuses");
    }
    ASSERT(bytes <= CONFIG_BLOB_MAX && strlen(kind) <= CONFIG_KIND_MAX &&
           strlen(id) <= CONFIG_ID_MAX && engine->record_count < RECORDS_MAX);
    (void)!engine_config_delete(engine, kind, id, NULL);
    uint32_t at = 0;
    while (at < engine->record_count && strcmp(engine->records[at].id, id) < 0) {
        at++;
    }
    struct record *record = &engine->records[at];
    memmove(record + 1, record, (engine->record_count - at) * sizeof(engine->records[0]));
    *record = (struct record){.blob = mem_alloc(bytes), .bytes = bytes};
    (void)snprintf(record->kind, sizeof(record->kind), "%s", kind);
    (void)snprintf(record->id, sizeof(record->id), "%s", id);
    memcpy(record->blob, blob, bytes);
    engine->record_count++;
    return OK;
}

void engine_config_each(struct engine *engine, const char *kind,
                        void (*visit)(void *ctx, const char *kind, const char *id, const void *blob,
                                      uint32_t bytes),
                        void *ctx) {
    for (uint32_t i = 0; i < engine->record_count; i++) {
        const struct record *record = &engine->records[i];
        if (kind == NULL || strcmp(record->kind, kind) == 0) {
            visit(ctx, record->kind, record->id, record->blob, record->bytes);
        }
    }
}

/* ---- status, check ---- */

static struct engine_scrub_status fake_scrub = {.days = 30};

int engine_scrub(struct engine *engine, bool stop, struct errmsg *reterr) {
    (void)engine;
    if (fake_scrub.running != stop) {
        return errmsg_set(reterr, stop ? ERR_NOT_FOUND : ERR_BUSY, "the scrub is what it is");
    }
    fake_scrub.running = !stop;
    fake_scrub.rows_total = 4;
    fake_scrub.rows_done = 1;
    return OK;
}

int engine_scrub_schedule(struct engine *engine, uint32_t days, struct errmsg *reterr) {
    (void)engine;
    (void)reterr;
    fake_scrub.days = days;
    return OK;
}

void engine_scrub_status(const struct engine *engine, struct engine_scrub_status *ret_status) {
    (void)engine;
    *ret_status = fake_scrub;
}

/* ---- disks ---- */

int engine_disk_add(struct engine *engine, const struct engine_disk_add_options *options,
                    struct engine_disk_change *ret_change, struct errmsg *reterr) {
    uint32_t m = engine->path_count;
    *ret_change = (struct engine_disk_change){.member = m,
                                              .size_bytes = 1 << 30,
                                              .usable_before_bytes = (uint64_t)m << 29,
                                              .usable_after_bytes = (uint64_t)(m + 1) << 29,
                                              .storable = true,
                                              .fits = true};
    if (m == POOL_DISKS_MAX) {
        return errmsg_set(reterr, ERR_LIMIT, "pool %s has as many disks as it can", engine->name);
    }
    if (!options->dry_run) {
        (void)snprintf(engine->paths[m], sizeof(engine->paths[m]), "%s", options->path);
        engine->roles[m] = options->spare ? MEMBER_SPARE : MEMBER_NORMAL;
        engine->path_count++;
    }
    return OK;
}

int engine_disk_remove(struct engine *engine, const struct engine_disk_remove_options *options,
                       struct engine_disk_change *ret_change, struct errmsg *reterr) {
    *ret_change = (struct engine_disk_change){.member = options->member,
                                              .move_bytes = 1 << 20,
                                              .storable = options->member != 0,
                                              .fits = true};
    if (options->member == 0 && !options->force) {
        return errmsg_set(reterr, ERR_INVALID, "disk 0 is needed");
    }
    if (!options->dry_run) {
        engine->roles[options->member] = MEMBER_LEAVING;
    }
    return OK;
}

int engine_disk_keep(struct engine *engine, uint32_t member, struct errmsg *reterr) {
    (void)reterr;
    engine->roles[member] = MEMBER_NORMAL;
    return OK;
}

int engine_disk_replace(struct engine *engine, uint32_t member,
                        const struct engine_disk_add_options *options,
                        struct engine_disk_change *ret_change, struct errmsg *reterr) {
    int error = engine_disk_add(engine, options, ret_change, reterr);
    if (error == OK && !options->dry_run) {
        engine->removed[member] = true;
    }
    return error;
}

int engine_disk_fail(struct engine *engine, uint32_t member, uint64_t wait_ns,
                     struct errmsg *reterr) {
    (void)engine;
    (void)wait_ns;
    return errmsg_set(reterr, ERR_INVALID, "disk %u cannot be spared", member);
}

int engine_disk_return(struct engine *engine, uint32_t member, const char *path,
                       struct errmsg *reterr) {
    (void)engine;
    (void)path;
    return errmsg_set(reterr, ERR_INVALID, "disk %u is not missing", member);
}

void engine_status(struct engine *engine, struct engine_status *ret_status) {
    unsigned hang = atomic_exchange(&fake_engine_faults.loop_hang_ms, 0);
    if (hang > 0) {
        (void)usleep(hang * 1000);
    }
    unsigned lost = atomic_load(&fake_engine_faults.disk_lost);
    memset(ret_status, 0, sizeof(*ret_status));
    (void)snprintf(ret_status->name, sizeof(ret_status->name), "%s", engine->name);
    (void)snprintf(ret_status->health, sizeof(ret_status->health), "%s",
                   lost != 0 ? "degraded" : "ok");
    if (lost != 0) {
        (void)snprintf(ret_status->advice, sizeof(ret_status->advice), "a disk is lost");
    }
    ret_status->raw_bytes = (uint64_t)engine->path_count << 30;
    ret_status->usable_bytes = ret_status->free_bytes = ret_status->raw_bytes / 2;
    ret_status->disk_count = engine->path_count;
    for (uint32_t i = 0; i < engine->path_count; i++) {
        struct engine_disk_status *disk = &ret_status->disks[i];
        disk->member = i;
        disk->state = engine->removed[i]        ? MEMBER_NONE
                      : (lost & (1u << i)) != 0 ? MEMBER_MISSING
                                                : MEMBER_IN_SYNC;
        disk->role = engine->roles[i];
        disk->uuid.bytes[0] = (uint8_t)(i + 1);
        disk->present = disk->state == MEMBER_IN_SYNC;
        disk->size_bytes = 1 << 30;
        memcpy(disk->path, engine->paths[i], sizeof(disk->path));
    }
}

int engine_check(struct env *env, const struct pool_open_options *options,
                 void (*problem)(void *owner, const char *text), void *owner,
                 struct engine_check_result *ret_result, struct errmsg *reterr) {
    (void)env;
    (void)problem;
    (void)owner;
    (void)ret_result;
    return errmsg_set(reterr, ERR_NOT_FOUND, "the fake engine finds no pool %s", options->name);
}
