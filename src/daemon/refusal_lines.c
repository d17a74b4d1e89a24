#include "daemon/refusal_lines.h"

#include <stdio.h>
#include <string.h>

#include "base/thread.h"

void gb_refusal_lines_init(struct gb_refusal_lines *lines) {
    memset(lines, 0, sizeof(*lines));
    gb_mutex_init(&lines->lock);
}

void gb_refusal_lines_done(struct gb_refusal_lines *lines) {
    pthread_mutex_destroy(&lines->lock);
}

static bool is_over(const struct gb_refusal_kind *kind, uint64_t now_ns) {
    return now_ns - kind->since_ns >= GB_REFUSAL_LINES_NS;
}

static void begin(struct gb_refusal_kind *kind, const char *client, enum gb_code code, uint64_t now_ns) {
    *kind = (struct gb_refusal_kind){.code = code, .since_ns = now_ns};
    snprintf(kind->client, sizeof(kind->client), "%s", client);
}

/* Where all places are taken by minutes that are not over, it is one of the others. A minute that is over and has
 * nothing to tell gives its place. */
static struct gb_refusal_kind *kind_of(struct gb_refusal_lines *lines, const char *client, enum gb_code code,
                                       uint64_t now_ns) {
    struct gb_refusal_kind *place = NULL;
    unsigned i;

    for (i = 0; i < lines->used; i++) {
        struct gb_refusal_kind *kind = &lines->kinds[i];

        if (kind->code == code && strcmp(kind->client, client) == 0)
            return kind;
        if (kind->left_out == 0 && is_over(kind, now_ns))
            place = kind;
    }
    if (!place && lines->used < GB_REFUSAL_LINES_KINDS)
        place = &lines->kinds[lines->used++];
    if (place)
        begin(place, client, code, now_ns);
    return place ? place : &lines->others;
}

bool gb_refusal_lines_take(struct gb_refusal_lines *lines, const char *client, enum gb_code code, uint64_t now_ns) {
    struct gb_refusal_kind *kind;
    bool takes;

    pthread_mutex_lock(&lines->lock);
    kind = kind_of(lines, client, code, now_ns);
    if (kind->left_out == 0 && is_over(kind, now_ns)) {
        kind->since_ns = now_ns;
        kind->count = 0;
    }
    if (now_ns - lines->since_ns >= GB_REFUSAL_LINES_NS) {
        lines->since_ns = now_ns;
        lines->written = 0;
    }
    takes = kind->count++ < GB_REFUSAL_LINES_EACH && lines->written < GB_REFUSAL_LINES_ALL;
    lines->written += takes;
    kind->left_out += !takes;
    pthread_mutex_unlock(&lines->lock);
    return takes;
}

/* Its next minute begins. */
static bool tell(struct gb_refusal_kind *kind, bool all, uint64_t now_ns, struct gb_refusal_kind *ret) {
    if (kind->left_out == 0 || (!all && !is_over(kind, now_ns)))
        return false;
    *ret = *kind;
    kind->since_ns = now_ns;
    kind->count = kind->left_out = 0;
    return true;
}

bool gb_refusal_lines_told(struct gb_refusal_lines *lines, bool all, uint64_t now_ns, struct gb_refusal_kind *ret) {
    bool told = false;
    unsigned i;

    pthread_mutex_lock(&lines->lock);
    for (i = 0; i < lines->used && !told; i++)
        told = tell(&lines->kinds[i], all, now_ns, ret);
    if (!told)
        told = tell(&lines->others, all, now_ns, ret);
    pthread_mutex_unlock(&lines->lock);
    return told;
}
