/* Which refusals have a line in the log of their own. A client can cause any number of them: those of one client and
 * code beyond a few in a minute, and those of all beyond many, are counted and told together. */
#ifndef GB_DAEMON_REFUSAL_LINES_H
#define GB_DAEMON_REFUSAL_LINES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"
#include "http/http.h"

#define GB_REFUSAL_LINES_NS (60 * GB_NS_PER_S)
#define GB_REFUSAL_LINES_EACH 10
#define GB_REFUSAL_LINES_ALL 300
/* Clients and codes that are told apart at a time. */
#define GB_REFUSAL_LINES_KINDS 64

struct gb_refusal_kind {
    char client[GB_HTTP_ADDRESS_SIZE]; /* "": all others */
    enum gb_code code;                 /* GB_OK: any */
    uint64_t since_ns;
    uint64_t count;    /* since then */
    uint64_t left_out; /* of them */
};

struct gb_refusal_lines {
    pthread_mutex_t lock; /* for all below; a leaf */
    struct gb_refusal_kind kinds[GB_REFUSAL_LINES_KINDS];
    unsigned used;
    struct gb_refusal_kind others;
    uint64_t since_ns; /* of the minute that `written` counts */
    uint64_t written;
};

void gb_refusal_lines_init(struct gb_refusal_lines *lines);
void gb_refusal_lines_done(struct gb_refusal_lines *lines);

/* [any thread] True: it has a line. */
bool gb_refusal_lines_take(struct gb_refusal_lines *lines, const char *client, enum gb_code code, uint64_t now_ns);

/* [one thread] False: nothing is to be told. Else *ret is of a minute that is over, in which lines were left out. all:
 * also of one that is not over. To be asked again until it is false. */
bool gb_refusal_lines_told(struct gb_refusal_lines *lines, bool all, uint64_t now_ns, struct gb_refusal_kind *ret);

#endif
