/* A source as source.c sees it: a URL (url.c) or a file (file.c). It is opened once, which tells how long it is and of
 * which version. Then its bytes are read over connections, each by one thread: any number of them if it is `ranged`,
 * otherwise over the one that opened it, from the first byte to the last. */
#ifndef GB_SOURCE_WAY_H
#define GB_SOURCE_WAY_H

#include "source/fetch.h"
#include "source/image.h"

struct gb_way;

struct gb_way_conn {
    struct gb_way *way;
    unsigned retry_after_s; /* the source has asked for so long a pause; 0: it has not */
    bool silent;            /* nothing came for too long, so that it is not tried as often */
};

struct gb_way_kind {
    /* Asks for the source's beginning, also after it was open before, and sets what is known of it. */
    enum gb_pull_outcome (*open)(struct gb_way *way, struct gb_way_conn *conn, struct gb_error *err);
    /* A connection, not open yet. NULL: no memory. */
    struct gb_way_conn *(*conn_new)(struct gb_way *way);
    void (*conn_free)(struct gb_way_conn *conn); /* NULL is accepted */
    /* Whether read gives bytes, or the end, without a wait. */
    bool (*has)(struct gb_way_conn *conn, uint64_t at);
    /* Waits for bytes of the source from `at` on, of which none from `until` on is wanted. BROKEN: if the source is
     * ranged it may be tried again. */
    enum gb_pull_outcome (*wait)(struct gb_way_conn *conn, uint64_t at, uint64_t until, struct gb_error *err);
    /* Reads them. *ret 0: the source ends there. */
    enum gb_pull_outcome (*read)(struct gb_way_conn *conn, uint64_t at, void *room, size_t n, size_t *ret,
                                 struct gb_error *err);
    /* All bytes were read: whether they are of one version. NULL: that was seen as they came. */
    enum gb_pull_outcome (*check)(struct gb_way *way, struct gb_error *err);
    void (*free)(struct gb_way *way);
};

/* Embedded as the first member. */
struct gb_way {
    const struct gb_way_kind *kind;
    struct gb_fetch *fetch;
    char name[256]; /* what errors call it */
    /* Since it was opened: */
    uint64_t length; /* GB_UNLIMITED: its end will show */
    uint64_t first;  /* that many bytes come at once when it is opened */
    bool ranged;
    enum gb_image_format named; /* what its name or its type says that it is; AUTO: nothing */
    char tag[GB_PULL_TAG_SIZE]; /* strong, with its quotes; "": none */
    struct gb_digest_set told;  /* what the source says of all of its bytes */
    bool contradicts;           /* it told two digests of one kind, of which `told` has the last */
};

struct gb_source_params;

/* [any thread] NULL: no memory. Both copy what they need. */
struct gb_way *gb_url_new(struct gb_fetch *fetch, const struct gb_source_params *params);
struct gb_way *gb_file_new(struct gb_fetch *fetch, const struct gb_source_params *params);

#endif
