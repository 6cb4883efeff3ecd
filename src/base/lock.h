// SPDX-License-Identifier: MPL-2.0
/* A lock between the threads of loops: for data that several loops share and that a message would
 * be too slow for. It is short: held over some hundred instructions, never while anything is waited
 * for, copied in bulk or sent. Whoever finds it taken spins a little before it sleeps. */
#ifndef HOLDFAST_BASE_LOCK_H
#define HOLDFAST_BASE_LOCK_H

#include <pthread.h>

#include "base/assert.h"

struct lock {
    pthread_mutex_t mutex;
};

static inline void lock_init(struct lock *lock) {
    pthread_mutexattr_t attributes;
    ASSERT(pthread_mutexattr_init(&attributes) == 0);
    ASSERT(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP) == 0);
    ASSERT(pthread_mutex_init(&lock->mutex, &attributes) == 0);
    (void)pthread_mutexattr_destroy(&attributes);
}

static inline void lock_done(struct lock *lock) {
    ASSERT(pthread_mutex_destroy(&lock->mutex) == 0);
}

static inline void lock_take(struct lock *lock) {
    ASSERT(pthread_mutex_lock(&lock->mutex) == 0);
}

static inline void lock_release(struct lock *lock) {
    ASSERT(pthread_mutex_unlock(&lock->mutex) == 0);
}

#endif
