/* Epochs of registered sessions: a short list under a lock. http.c adds the session's epoch to each request by its
 * path, and takes new ones from answers; gpubuf_fleet_expect() sets one. A session that was deleted or superseded is
 * forgotten. */
#include "client/epochs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"

#define SESSIONS "/v1/sessions/"
#define OF_FLEET "/v1/fleet/sessions/"

struct known {
    char session[GPUBUF_NAME_SIZE]; /* "": a free place */
    uint64_t epoch;
    uint64_t used; /* the clock of its last use */
};

struct gbc_epochs {
    atomic_uint refs;
    pthread_mutex_t lock;
    uint64_t clock;
    struct known known[GBC_EPOCHS];
};

struct gbc_epochs *gbc_epochs_new(void) {
    struct gbc_epochs *epochs = calloc(1, sizeof(*epochs));

    if (!epochs)
        return NULL;
    atomic_init(&epochs->refs, 1);
    pthread_mutex_init(&epochs->lock, NULL);
    return epochs;
}

struct gbc_epochs *gbc_epochs_ref(struct gbc_epochs *epochs) {
    atomic_fetch_add(&epochs->refs, 1);
    return epochs;
}

void gbc_epochs_unref(struct gbc_epochs *epochs) {
    if (!epochs || atomic_fetch_sub(&epochs->refs, 1) > 1)
        return;
    pthread_mutex_destroy(&epochs->lock);
    free(epochs);
}

/* --- the session of a path ---------------------------------------------------------------------------------------- */

/* The segment that begins there, without its escapes. "": it is too long for a name. Returns where it ends. */
static const char *segment(const char *at, char ret[GPUBUF_NAME_SIZE]) {
    size_t n = 0;

    for (; *at != '\0' && *at != '/' && *at != '?'; at++) {
        char c = *at;

        if (c == '%' && gb_hex_digit(at[1]) >= 0 && gb_hex_digit(at[2]) >= 0) {
            c = (char)(gb_hex_digit(at[1]) * 16 + gb_hex_digit(at[2]));
            at += 2;
        }
        if (n < GPUBUF_NAME_SIZE)
            ret[n++] = c;
    }
    ret[n < GPUBUF_NAME_SIZE ? n : 0] = '\0';
    return at;
}

/* Returns what follows the session's name in a target below that path; NULL if it is not below it. */
static const char *below(const char *target, const char *path, char ret[GPUBUF_NAME_SIZE]) {
    size_t n = strlen(path);

    return strncmp(target, path, n) == 0 ? segment(target + n, ret) : NULL;
}

/* --- what is known ------------------------------------------------------------------------------------------------ */

static struct known *find_locked(struct gbc_epochs *epochs, const char *session) {
    size_t i;

    for (i = 0; i < GBC_EPOCHS; i++) {
        if (epochs->known[i].epoch > 0 && strcmp(epochs->known[i].session, session) == 0)
            return &epochs->known[i];
    }
    return NULL;
}

static struct known *place_locked(struct gbc_epochs *epochs) {
    struct known *oldest = &epochs->known[0];
    size_t i;

    for (i = 1; i < GBC_EPOCHS; i++) {
        if (epochs->known[i].used < oldest->used)
            oldest = &epochs->known[i];
    }
    return oldest;
}

static void set(struct gbc_epochs *epochs, const char *session, uint64_t epoch, bool lower) {
    struct known *known;

    if (epoch == 0 || session[0] == '\0' || strlen(session) >= GPUBUF_NAME_SIZE)
        return;
    pthread_mutex_lock(&epochs->lock);
    known = find_locked(epochs, session);
    if (!known) {
        known = place_locked(epochs);
        gbc_copy(known->session, sizeof(known->session), session);
        known->epoch = epoch;
    }
    if (lower || epoch > known->epoch)
        known->epoch = epoch;
    known->used = ++epochs->clock;
    pthread_mutex_unlock(&epochs->lock);
}

static void forget(struct gbc_epochs *epochs, const char *session) {
    struct known *known;

    pthread_mutex_lock(&epochs->lock);
    known = find_locked(epochs, session);
    if (known)
        memset(known, 0, sizeof(*known));
    pthread_mutex_unlock(&epochs->lock);
}

uint64_t gbc_epochs_of(struct gbc_epochs *epochs, const char *target) {
    char session[GPUBUF_NAME_SIZE];
    uint64_t epoch = 0;
    struct known *known;

    if (!below(target, SESSIONS, session))
        return 0;
    pthread_mutex_lock(&epochs->lock);
    known = find_locked(epochs, session);
    if (known) {
        known->used = ++epochs->clock;
        epoch = known->epoch;
    }
    pthread_mutex_unlock(&epochs->lock);
    return epoch;
}

void gpubuf_fleet_expect(gpubuf_client *client, const char *session, uint64_t epoch) {
    set(client->set.epochs, session, epoch, false);
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

/* A session that was made by a request of its collection is named by Location. What was known was of another one. */
static void take_made(struct gbc_epochs *epochs, const struct gbc_reply *reply) {
    const char *at = reply->status == 201 && reply->location.bytes > 0 ? strstr(reply->location.data, SESSIONS) : NULL;
    char session[GPUBUF_NAME_SIZE];

    if (at && reply->epoch.set && below(at, SESSIONS, session))
        set(epochs, session, reply->epoch.value, true);
}

void gbc_epochs_answer(struct gbc_epochs *epochs, const char *method, const char *target, const struct gbc_reply *reply,
                       int code) {
    char session[GPUBUF_NAME_SIZE];
    const char *rest = below(target, SESSIONS, session);
    bool deletes = strcmp(method, "DELETE") == 0;

    if (!rest && !below(target, OF_FLEET, session)) {
        take_made(epochs, reply);
        return;
    }
    if (reply->epoch.set)
        set(epochs, session, reply->epoch.value, false);
    /* A session that is made under the name later may be one of another fleet or of none. What is not found by a POST
     * may be another session, the source of a copy. */
    if ((code == GPUBUF_SESSION_NOT_FOUND && strcmp(method, "POST") != 0) ||
        (deletes && rest && rest[0] != '/' && reply->status >= 200 && reply->status < 300))
        forget(epochs, session);
}
