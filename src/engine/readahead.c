// SPDX-License-Identifier: MPL-2.0
/* Read-ahead: somebody who reads a volume front to back in small pieces finds the next piece in the
 * cache.
 *
 * Each volume remembers a few streams: where the next read would begin if it is one. A read that
 * begins where a stream expects it (or a little behind or ahead: several may be under way) moves
 * the stream on; after STREAM_PROVEN of them, a fiber reads ahead into the data cache, one at a
 * time a stream, with a window that doubles up to 8 MiB or an eighth of the cache. Long reads bring
 * their own depth and are left alone. What is read ahead is verified like anything else, and keyed
 * by vba, so it can be useless but never stale. An error is dropped: whoever needs the block will
 * meet it. */
#include "base/math.h"
#include "base/mem.h"
#include "engine/private.h"

enum {
    SHORT_READ_BLOCKS = 32,
    STREAM_PROVEN = 4,
    WINDOW_LEAST = 64,
    WINDOW_MOST = 2048,
    TOLERANCE = 64,
};

struct ahead_job {
    struct engine *e;
    struct volume *v;
    struct read_stream *stream;
    uint64_t start;
    uint32_t count;
};

static void ahead_fiber(void *arg) {
    struct ahead_job *job = arg;
    struct engine *e = job->e;
    for (uint32_t done = 0; done < job->count && e->state == ENGINE_RUNNING;) {
        uint32_t n = MIN(job->count - done, 256u);
        if (read_blocks(e, job->v, job->start + done, n, NULL, NULL) != OK) {
            break;
        }
        e->read_ahead_blocks += n;
        done += n;
    }
    job->stream->busy = false;
    job->v->users--;
    mem_free(job);
    if (--e->read_aheads == 0) {
        fiber_queue_wake_all(&e->idle);
    }
}

static void ahead_start(struct engine *e, struct volume *v, struct read_stream *s) {
    uint64_t end_of_volume = v->phys.size_bytes / BLOCK_BYTES;
    uint64_t cache_blocks = e->limits.read_cache_bytes / BLOCK_BYTES / 8;
    uint64_t most = MIN(cache_blocks, (uint64_t)WINDOW_MOST);
    uint64_t wanted = s->window == 0 ? (uint64_t)WINDOW_LEAST : 2ull * s->window;
    s->window = (uint32_t)MIN(wanted, most);
    uint64_t start = MAX(s->ahead, s->next);
    uint64_t end = MIN(s->next + s->window, end_of_volume);
    if (start >= end) {
        return;
    }
    struct ahead_job *job = MEM_NEW(struct ahead_job);
    *job = (struct ahead_job){
        .e = e, .v = v, .stream = s, .start = start, .count = (uint32_t)(end - start)};
    s->ahead = end;
    s->busy = true;
    v->users++;       /* the volume stays while it is read */
    e->read_aheads++; /* and so does the engine; it is no request, and takes no request's place */
    fiber_start(e->env, ahead_fiber, job);
}

static struct read_stream *stream_find(struct volume *v, uint64_t block) {
    struct read_stream *oldest = NULL;
    for (uint32_t i = 0; i < READ_STREAMS; i++) {
        struct read_stream *s = &v->stream[i];
        if (s->used != 0 && block + TOLERANCE >= s->next && block <= s->next + TOLERANCE) {
            return s;
        }
        if (!s->busy && (oldest == NULL || s->used < oldest->used)) {
            oldest = s;
        }
    }
    if (oldest != NULL) {
        *oldest = (struct read_stream){.next = block};
    }
    return oldest;
}

void read_ahead_note(struct engine *e, struct volume *v, uint64_t block, uint64_t count) {
    if (count > SHORT_READ_BLOCKS) {
        return;
    }
    struct read_stream *s = stream_find(v, block);
    if (s == NULL) {
        return;
    }
    s->used = ++v->stream_clock;
    s->proven += block + count > s->next;
    s->next = MAX(s->next, block + count);
    if (s->proven >= STREAM_PROVEN && !s->busy && s->ahead < s->next + s->window / 2 + 1) {
        ahead_start(e, v, s);
    }
}
