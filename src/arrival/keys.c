/* What requests with an Idempotency-Key were answered at the owner: they are known here when the session is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrival/arrival.h"

#define OPEN_PAUSE_MS 5
#define OPEN_TRIES 100 /* so often the owner is asked for answers that it is about to know */

/* Those that are on their way to the database. */
struct keeping {
    struct gb_arrival_wait wait;
    size_t pending; /* the arrival's lock, as error */
    struct gb_error error;
};

static void release(struct keeping *keeping, const struct gb_error *error) {
    struct gb_arrival *arrival = keeping->wait.arrival;

    pthread_mutex_lock(&arrival->lock);
    if (error && keeping->error.code == GB_OK)
        keeping->error = *error;
    if (--keeping->pending == 0) {
        keeping->wait.done = true;
        pthread_cond_broadcast(&arrival->woken);
    }
    pthread_mutex_unlock(&arrival->lock);
}

static void kept(void *arg, const struct gb_error *error) {
    release(arg, error);
}

/* The database ends all of them soon. */
static int await(struct keeping *keeping, struct gb_error *err) {
    struct gb_arrival *arrival = keeping->wait.arrival;

    release(keeping, NULL);
    pthread_mutex_lock(&arrival->lock);
    while (!keeping->wait.done)
        pthread_cond_wait(&arrival->woken, &arrival->lock);
    pthread_mutex_unlock(&arrival->lock);
    return keeping->error.code == GB_OK ? 0 : gb_error_move(err, &keeping->error);
}

static bool read_text(const json_t *item, const char *key, size_t length, char *ret) {
    const char *text = gb_arrival_text(item, key);

    if (strlen(text) != length)
        return false;
    memcpy(ret, text, length + 1);
    return true;
}

static int bring(struct gb_arrival *arrival, const json_t *item, struct keeping *keeping, struct gb_error *err) {
    const char *body = gb_arrival_text(item, "body");
    int status = (int)json_integer_value(json_object_get(item, "status"));
    struct gb_key_copy copy = {.left_us = json_integer_value(json_object_get(item, "left_us"))};
    int r;

    if (!read_text(item, "id", sizeof(copy.id) - 1, copy.id) ||
        (copy.id[0] != GB_KEY_WITHIN && copy.id[0] != GB_KEY_OF) ||
        !read_text(item, "fingerprint", sizeof(copy.fingerprint) - 1, copy.fingerprint))
        return gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the keys that the node \"%s\" tells cannot be read",
                            arrival->owner.name.s);
    if (status > 0) {
        copy.answer = gb_idempotency_reply_new(status, gb_arrival_text(item, "headers"), body, strlen(body));
        if (!copy.answer)
            return gb_error_set(err, GB_ERR_SATURATED, "no memory to bring the session; try again later");
    }
    pthread_mutex_lock(&arrival->lock);
    keeping->pending++;
    pthread_mutex_unlock(&arrival->lock);
    r = gb_key_bring(arrival->config.core, arrival->stage_id, &copy, kept, keeping, err);
    if (r < 0)
        release(keeping, NULL);
    gb_idempotency_reply_unref(copy.answer);
    return r;
}

static int bring_page(struct gb_arrival *arrival, json_t *root, struct gb_error *err) {
    struct keeping keeping = {.wait = {.arrival = arrival}, .pending = 1};
    struct gb_error why = GB_ERROR_INIT;
    struct gb_error unkept = GB_ERROR_INIT;
    const json_t *item;
    size_t i;
    int r = 0;

    json_array_foreach(json_object_get(root, "keys"), i, item) {
        r = bring(arrival, item, &keeping, &why);
        if (r < 0)
            break;
    }
    if (await(&keeping, &unkept) < 0 && r == 0) {
        r = -1;
        gb_error_move(&why, &unkept);
    }
    return r < 0 ? gb_error_move(err, &why) : 0;
}

/* One of a former version has no such step. */
static json_t *ask(struct gb_arrival *arrival, bool last, struct gb_error *err) {
    char path[64 + GB_NAME_MAX];
    json_t *body = json_pack("{s:s, s:I, s:b}", "step", "keys", "after", (json_int_t)arrival->keys_after, "last", last);
    struct gb_error why = GB_ERROR_INIT;
    bool answered;
    json_t *root;

    snprintf(path, sizeof(path), "/v1/fleet/sessions/%s/handover", arrival->session.s);
    root = gb_arrival_post(arrival, path, body, &answered, &why);
    if (root)
        return root;
    if (answered && (why.code == GB_ERR_UNKNOWN_FIELD || why.code == GB_ERR_INVALID_ARGUMENT))
        arrival->keyless = true;
    else
        gb_error_move(err, &why);
    return NULL;
}

int gb_arrival_bring_keys(struct gb_arrival *arrival, bool last, struct gb_error *err) {
    unsigned tries = 0;
    bool more = true;
    bool open = false;
    json_t *root;
    int r = 0;

    while (r == 0 && !arrival->keyless && (more || (last && open && tries++ < OPEN_TRIES))) {
        if (!more && !gb_arrival_pause(arrival, OPEN_PAUSE_MS))
            return gb_arrival_stopped_error(arrival, err);
        root = ask(arrival, last, err);
        if (!root)
            return arrival->keyless ? 0 : -1;
        arrival->keys_after = (uint64_t)json_integer_value(json_object_get(root, "after"));
        more = json_is_true(json_object_get(root, "more"));
        open = json_is_true(json_object_get(root, "open"));
        r = bring_page(arrival, root, err);
        json_decref(root);
    }
    return r;
}
