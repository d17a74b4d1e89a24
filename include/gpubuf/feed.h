/* What happens in the daemon, as it happens. Part of <gpubuf/gpubuf.h>. */
#ifndef GPUBUF_FEED_H
#define GPUBUF_FEED_H

#include <gpubuf/client.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Something that happened. Texts are "" and device.index is -1 where the daemon says nothing of it. */
struct gpubuf_news {
    uint64_t id;
    char at[GPUBUF_TIME_SIZE];
    char type[48]; /* "buffer.created"; "feed.gap": some were missed */
    char session[GPUBUF_NAME_SIZE];
    char pool[GPUBUF_NAME_SIZE];
    char buffer[GPUBUF_NAME_SIZE];
    struct gpubuf_device_id device;
    struct gpubuf_opt bytes;
    struct gpubuf_opt count; /* of what came often: how many */
    uint64_t generation;
    char lease[GPUBUF_ID_SIZE];
    char detail[256];
    const char *json;            /* as the daemon wrote it, until the function returns */
    char head[GPUBUF_WORD_SIZE]; /* of a mirrored buffer */
};

/* Anything but 0 ends the feed. */
typedef int gpubuf_news_fn(void *arg, const struct gpubuf_news *news);

struct gpubuf_feed_params {
    const char *types;       /* "pool.,buffer.lost": those whose type begins so; NULL: all */
    struct gpubuf_opt after; /* set: those after this id, 0 all that the daemon still has; else from now on */
    /* A connection that stood has ended (why->code is GPUBUF_OK where the daemon ended it in order), or another could
     * not be made. The feed continues with the next event as soon as there is one again. Anything but 0 ends it. May be
     * NULL. */
    int (*again)(void *arg, bool stood, const struct gpubuf_error *why);
    int (*tick)(void *arg); /* some ten times a second; anything but 0 ends it. May be NULL */
    void *arg;              /* of these and of hear */
    uint64_t room[8];
};

/* Calls hear for each event, on the calling thread, until a callback ends the feed. params may be NULL. Lost
 * connections are made again; no event is missed or repeated but for those that a feed.gap stands for. Returns 0 if
 * a callback ended it, else -1. Errors: those of the first connection, those of a refusal, INTERRUPTED. */
int gpubuf_feed_listen(gpubuf_client *client, const struct gpubuf_feed_params *params, gpubuf_news_fn *hear,
                       struct gpubuf_error *err);

#ifdef __cplusplus
}
#endif

#endif
