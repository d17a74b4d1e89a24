#include "http/exchange/conn_slots.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/digest.h"
#include "base/thread.h"

#define KEPT_SHARE 16
#define KEPT_LEAST 8

/* One address: of IPv4 the address itself; of IPv6 the network, within which a client takes any address it likes. */
struct key {
    uint64_t high;
    uint64_t low;
};

struct gb_source {
    struct gb_conn_slots *places;
    struct gb_source *next;
    struct key key;
    unsigned count;
};

/* --- addresses ---------------------------------------------------------------------------------------------------- */

static struct key key_of(const struct sockaddr *from, bool *ret_loopback) {
    struct key key = {0, 0};
    struct sockaddr_in6 six;
    struct sockaddr_in four;

    *ret_loopback = false;
    if (from->sa_family == AF_INET) {
        memcpy(&four, from, sizeof(four));
        key.low = ntohl(four.sin_addr.s_addr);
    } else if (from->sa_family == AF_INET6) {
        memcpy(&six, from, sizeof(six));
        memcpy(&key.high, six.sin6_addr.s6_addr, 8);
        if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
            memcpy(&four.sin_addr, six.sin6_addr.s6_addr + 12, 4);
            key = (struct key){0, ntohl(four.sin_addr.s_addr)};
        } else if (IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) {
            memcpy(&key.low, six.sin6_addr.s6_addr + 8, 8); /* all machines of a link have the same network */
        } else {
            *ret_loopback = IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
            key.low = UINT64_MAX; /* no IPv4 address */
        }
    }
    *ret_loopback = *ret_loopback || (key.high == 0 && key.low >> 24 == IN_LOOPBACKNET);
    return key;
}

static struct gb_source **bucket_of(struct gb_conn_slots *places, struct key key) {
    uint64_t hash = (key.high ^ places->seed) * 0x9e3779b97f4a7c15u;

    hash = (hash ^ hash >> 32 ^ key.low) * 0x9e3779b97f4a7c15u;
    return &places->bucket[hash >> 40 & (GB_CONN_SLOTS_BUCKETS - 1)];
}

/* Returns the address's record, made if it is missing, or NULL if memory is exhausted. */
static struct gb_source *find_locked(struct gb_conn_slots *places, struct key key) {
    struct gb_source **bucket = bucket_of(places, key);
    struct gb_source *s;

    for (s = *bucket; s && (s->key.high != key.high || s->key.low != key.low); s = s->next)
        ;
    if (s)
        return s;
    s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->places = places;
    s->key = key;
    s->next = *bucket;
    *bucket = s;
    return s;
}

/* Loopback is bounded if that is asked for: it stands for all users of the machine, and often for a proxy with many
 * clients. */
static enum gb_conn_slot source_take(struct gb_conn_slots *places, const struct sockaddr *from,
                                     struct gb_source **ret) {
    enum gb_conn_slot place = GB_CONN_SLOT_TAKEN;
    struct gb_source *s;
    bool loopback;
    struct key key = key_of(from, &loopback);

    pthread_mutex_lock(&places->lock);
    s = find_locked(places, key);
    if (!s)
        place = GB_CONN_SLOT_MEMORY;
    else if (places->source_max > 0 && s->count >= places->source_max && (places->bound_loopback || !loopback))
        place = GB_CONN_SLOT_SOURCE;
    else
        s->count++;
    pthread_mutex_unlock(&places->lock);
    *ret = place == GB_CONN_SLOT_TAKEN ? s : NULL;
    return place;
}

void gb_source_end(struct gb_source *source) {
    struct gb_conn_slots *places;
    struct gb_source **at;

    if (!source)
        return;
    places = source->places;
    pthread_mutex_lock(&places->lock);
    if (--source->count == 0) {
        for (at = bucket_of(places, source->key); *at != source; at = &(*at)->next)
            ;
        *at = source->next;
        free(source);
    }
    pthread_mutex_unlock(&places->lock);
}

/* --- places ------------------------------------------------------------------------------------------------------- */

static bool count_up(atomic_uint_fast64_t *count, uint64_t max) {
    uint_fast64_t now = atomic_load(count);

    while (now < max) {
        if (atomic_compare_exchange_weak(count, &now, now + 1))
            return true;
    }
    return false;
}

enum gb_conn_slot gb_conn_slot_take(struct gb_conn_slots *places, const struct sockaddr *from, bool beyond,
                                    struct gb_source **ret) {
    enum gb_conn_slot place = GB_CONN_SLOT_TAKEN;

    *ret = NULL;
    if (from)
        place = source_take(places, from, ret);
    if (place != GB_CONN_SLOT_TAKEN)
        return place;
    if (from && !count_up(&places->remote, beyond ? UINT64_MAX : places->remote_max)) {
        place = GB_CONN_SLOT_FULL;
    } else if (!count_up(&places->taken, beyond ? UINT64_MAX : places->max)) {
        place = GB_CONN_SLOT_FULL;
        if (from)
            atomic_fetch_sub(&places->remote, 1);
    }
    if (place != GB_CONN_SLOT_TAKEN) {
        gb_source_end(*ret);
        *ret = NULL;
    }
    return place;
}

void gb_conn_slot_leave(struct gb_conn_slots *places, const struct gb_source *source) {
    if (source)
        atomic_fetch_sub(&places->remote, 1);
    atomic_fetch_sub(&places->taken, 1);
}

void gb_conn_slot_end(struct gb_conn_slots *places, struct gb_source *source) {
    gb_conn_slot_leave(places, source);
    gb_source_end(source);
}

uint64_t gb_conn_slots_kept(uint64_t max) {
    uint64_t share = max / KEPT_SHARE > KEPT_LEAST ? max / KEPT_SHARE : KEPT_LEAST;

    return share < max / 2 ? share : max / 2;
}

int gb_conn_slots_init(struct gb_conn_slots *places, uint64_t max, unsigned source_max, bool local,
                       struct gb_error *err) {
    places->max = max;
    places->remote_max = max - (local ? gb_conn_slots_kept(max) : 0);
    places->source_max = source_max;
    gb_mutex_init(&places->lock);
    places->ready = true;
    return gb_random(&places->seed, sizeof(places->seed), err);
}

void gb_conn_slots_done(struct gb_conn_slots *places) {
    if (places->ready)
        pthread_mutex_destroy(&places->lock);
    places->ready = false;
}
