/* Noting what happened, inside the core. [any thread, never blocks; a leaf: whatever locks are held] Each when it is true and can
 * be seen, not before. */
#ifndef GB_CORE_RUNTIME_NOTICES_H
#define GB_CORE_RUNTIME_NOTICES_H

#include <pthread.h>

#include "core/observe/feed.h"

struct gb_session;
struct gb_core_pool;
struct gb_buffer;
struct gb_lease;

#define GB_FEED_TAIL 2048
#define GB_FEED_RATE_LIMITERS 64

/* What comes many times a second: the first is told at once, then how many there were, once a second. */
struct gb_rate_limiter {
    bool active;
    uint64_t until_ns;
    uint64_t more; /* since the last that was told */
    struct gb_notice notice;
};

struct gb_feed {
    pthread_mutex_t lock; /* for all up to the storms */
    pthread_cond_t grown;
    struct gb_notice *tail; /* a ring of GB_FEED_TAIL */
    size_t first;
    size_t count;
    int64_t floor; /* all that is above is in the tail */
    int64_t last;
    void (*wake)(void *arg);
    void *wake_arg;

    pthread_mutex_t limiter_lock;
    struct gb_rate_limiter limiters[GB_FEED_RATE_LIMITERS];
};

/* Loads the newest from the database, notes daemon.started. */
int gb_feed_init(struct gb_core *core, struct gb_error *err);
void gb_feed_done(struct gb_core *core);

/* Once a second: storms. */
void gb_feed_tick(struct gb_core *core);

/* Sets type and time; device -1; session may be NULL. */
struct gb_notice gb_notice_of(const struct gb_session *session, enum gb_notice_type type);
void gb_notice_post(struct gb_core *core, const struct gb_notice *notice);
void gb_notice_post_limited(struct gb_core *core, const struct gb_notice *notice);

void gb_notice_post_session(struct gb_session *session, enum gb_notice_type type);
void gb_notice_post_pool(struct gb_session *session, const struct gb_core_pool *pool, enum gb_notice_type type);
void gb_notice_post_lease(const struct gb_lease *lease, enum gb_notice_type type);
/* Buffers that lost their bytes, and why. */
void gb_notice_post_lost(struct gb_session *session, uint64_t count, const char *why);
struct gb_notice gb_notice_of_buffer(struct gb_session *session, const struct gb_buffer *buffer,
                                     enum gb_notice_type type);

#endif
