/* Requests with a key: claimed, carried out, answered, and kept for a time, in memory and in the database. A key's
 * answer is committed before the client gets it. The pipeline of the API calls this, and sessions that move take their
 * keys along. */
#include "core/access/keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/durable/stored.h"
#include "core/public/access.h"
#include "core/runtime/runtime.h"

/* --- answers ------------------------------------------------------------------------------------------------------ */

struct gb_idempotency_reply *gb_idempotency_reply_new(int status, const char *headers, const char *body,
                                                      size_t body_len) {
    struct gb_idempotency_reply *a = calloc(1, sizeof(*a));

    if (!a)
        return NULL;
    atomic_init(&a->refs, 1);
    a->status = status;
    a->headers = strdup(headers ? headers : "");
    a->body = malloc(body_len + 1);
    a->body_len = body_len;
    if (!a->headers || !a->body) {
        gb_idempotency_reply_unref(a);
        return NULL;
    }
    if (body_len > 0)
        memcpy(a->body, body, body_len);
    a->body[body_len] = '\0';
    return a;
}

void gb_idempotency_reply_unref(struct gb_idempotency_reply *a) {
    if (!a || atomic_fetch_sub(&a->refs, 1) != 1)
        return;
    free(a->headers);
    free(a->body);
    free(a);
}

static uint64_t weight(const struct gb_idempotency_reply *a) {
    return a ? strlen(a->headers) + a->body_len : 0;
}

/* --- entries ------------------------------------------------------------------------------------------------------ */

struct gb_keys *gb_keys_new(const struct gb_core_config *config, struct gb_store *store) {
    struct gb_keys *k = calloc(1, sizeof(*k));

    if (!k)
        return NULL;
    k->store = store;
    k->max = config->keys_max ? config->keys_max : GB_KEYS_MAX;
    k->ttl_us = (int64_t)(config->key_ttl_s ? config->key_ttl_s : GB_KEY_TTL_S) * 1000000;
    gb_mutex_init(&k->lock);
    return k;
}

void gb_key_id_write(char letter, int64_t session, const char *rest, char ret[65]) {
    snprintf(ret, 65, "%c%015" PRIx64 "%.*s", letter, (uint64_t)session, GB_KEY_REST, rest);
}

static void drop_locked(struct gb_keys *k, struct gb_key_entry *e) {
    gb_map_take(&k->map, e->key.id);
    if (gb_map_get(&k->of, e->key.id + GB_KEY_SESSION) == e)
        gb_map_take(&k->of, e->key.id + GB_KEY_SESSION);
    if (e->prev)
        e->prev->next = e->next;
    else
        k->first = e->next;
    if (e->next)
        e->next->prev = e->prev;
    else
        k->last = e->prev;
    k->under_way -= e->state == GB_KEY_UNDER_WAY;
    k->bytes -= weight(e->answer);
    gb_idempotency_reply_unref(e->answer);
    free(e->intent);
    free(e);
}

void gb_keys_free(struct gb_keys *k) {
    if (!k)
        return;
    while (k->first)
        drop_locked(k, k->first);
    gb_map_done(&k->map);
    gb_map_done(&k->of);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

/* Keys whose time has ended by then have lived for it while a daemon saw it pass: a clock that jumps ends none. */
static int64_t now_of(struct gb_keys *k) {
    return gb_store_seen_since(k->store, k->ttl_us) + k->ttl_us;
}

/* Drops the oldest entries that are not under way, as far as needed, and every entry that has expired. */
static void make_room_locked(struct gb_keys *k) {
    int64_t now_us = now_of(k);
    struct gb_key_entry *e;
    struct gb_key_entry *next;

    for (e = k->first; e; e = next) {
        next = e->next;
        if (e->expires_at_us > now_us && k->map.count < k->max && k->bytes <= GB_KEYS_BYTES_MAX)
            break;
        if (e->state != GB_KEY_UNDER_WAY)
            drop_locked(k, e);
    }
}

static struct gb_key_entry *add_locked(struct gb_keys *k, const struct gb_key *key) {
    struct gb_key_entry *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->key = *key;
    e->state = GB_KEY_UNDER_WAY;
    e->expires_at_us = gb_wall_us() + k->ttl_us;
    if (gb_map_put(&k->map, e->key.id, e) < 0) {
        free(e);
        return NULL;
    }
    if (e->key.id[0] == GB_KEY_OF && gb_map_put(&k->of, e->key.id + GB_KEY_SESSION, e) < 0) {
        gb_map_take(&k->map, e->key.id);
        free(e);
        return NULL;
    }
    e->prev = k->last;
    if (e->prev)
        e->prev->next = e;
    else
        k->first = e;
    k->last = e;
    k->under_way++;
    return e;
}

static void set_state_locked(struct gb_keys *k, struct gb_key_entry *e, enum gb_key_state state) {
    k->under_way -= e->state == GB_KEY_UNDER_WAY;
    e->state = state;
    e->change = ++k->changes;
}

/* [the thread that reports the commit] */
static void marked(void *arg, const struct gb_store_mark *mark) {
    struct gb_keys *k = arg;
    struct gb_key_entry *e;

    pthread_mutex_lock(&k->lock);
    e = gb_map_get(&k->map, mark->key);
    if (e)
        e->carried_out = true;
    pthread_mutex_unlock(&k->lock);
}

/* --- at start ----------------------------------------------------------------------------------------------------- */

static int load(void *arg, const void *row, struct gb_error *err) {
    const struct gb_store_idempotency_reply *rec = row;
    struct gb_keys *k = arg;
    struct gb_key_entry *e;
    struct gb_key key;

    if (rec->mark.expires_at_us <= now_of(k))
        return 0;
    make_room_locked(k);
    key.former_id[0] = key.former[0] = '\0';
    memcpy(key.id, rec->mark.key, sizeof(key.id));
    memcpy(key.fingerprint, rec->mark.fingerprint, sizeof(key.fingerprint));
    e = add_locked(k, &key);
    if (e && rec->status > 0)
        e->answer = gb_idempotency_reply_new(rec->status, rec->headers, rec->body, rec->body_len);
    if (e && rec->status == 0 && rec->headers[0])
        e->intent = strdup(rec->headers);
    if (!e || (rec->status > 0 && !e->answer) || (rec->status == 0 && rec->headers[0] && !e->intent))
        return gb_no_memory(err);
    e->expires_at_us = rec->mark.expires_at_us;
    k->bytes += weight(e->answer);
    set_state_locked(k, e, e->answer ? GB_KEY_ANSWERED : GB_KEY_UNANSWERED);
    return 0;
}

int gb_keys_load(struct gb_core *core, struct gb_error *err) {
    gb_store_marks_watch(core->store, marked, core->keys);
    return gb_store_load(core->store, GB_STORE_REPLIES, load, core->keys, err);
}

/* --- intents ------------------------------------------------------------------------------------------------------ */

static void put_intent(struct gb_core *core, const struct gb_store_mark *mark, const char *note, gb_store_done_fn *done,
                       void *arg) {
    const struct gb_store_idempotency_reply rec = {.mark = *mark, .durable = note[0] != '\0', .headers = note};

    gb_store_put_idempotency_reply(core->store, &rec, now_of(core->keys), core->keys->max, done, arg);
}

void gb_key_intend(struct gb_core *core, const struct gb_store_mark *mark, const char *note, gb_store_done_fn *done,
                   void *arg) {
    struct gb_key_entry *e;

    pthread_mutex_lock(&core->keys->lock);
    e = gb_map_get(&core->keys->map, mark->key);
    if (e)
        e->intended = true;
    pthread_mutex_unlock(&core->keys->lock);
    put_intent(core, mark, note, done, arg);
}

static void intent_stored(void *arg, const struct gb_error *error) {
    (void)arg;
    (void)error; /* it is asked again at the next start */
}

void gb_keys_resolve_intents(struct gb_core *core, const char *kind, bool (*carried_out)(void *arg, const char *note),
                             void *arg) {
    struct gb_keys *k = core->keys;
    struct gb_key_entry *e;
    struct gb_key_entry *next;

    pthread_mutex_lock(&k->lock);
    for (e = k->first; e; e = next) {
        struct gb_store_mark mark = {.expires_at_us = e->expires_at_us};

        next = e->next;
        if (!e->intent || strncmp(e->intent, kind, strlen(kind)) != 0)
            continue;
        if (!carried_out(arg, e->intent)) {
            drop_locked(k, e);
            continue;
        }
        /* What becomes of the thing later says nothing about this change. */
        memcpy(mark.key, e->key.id, sizeof(mark.key));
        memcpy(mark.fingerprint, e->key.fingerprint, sizeof(mark.fingerprint));
        put_intent(core, &mark, "", intent_stored, NULL);
        free(e->intent);
        e->intent = NULL;
    }
    pthread_mutex_unlock(&k->lock);
}

/* --- use ---------------------------------------------------------------------------------------------------------- */

/* Only one of the two bodies may be known by now. */
static bool same_request(const struct gb_key *first, const struct gb_key *again) {
    const char *body = first->fingerprint + GB_KEY_HEAD;
    const char *other = again->fingerprint + GB_KEY_HEAD;

    if (again->former[0] && first->fingerprint[0] != again->fingerprint[0])
        return strcmp(first->fingerprint, again->former) == 0;
    return strncmp(first->fingerprint, again->fingerprint, GB_KEY_HEAD) == 0 &&
           ((*body == '-') != (*other == '-') || strcmp(body, other) == 0);
}

static void look_locked(struct gb_keys *k, struct gb_key_entry *e, const struct gb_key *key, struct gb_key_claim *ret) {
    if (!same_request(&e->key, key)) {
        ret->state = GB_KEY_OTHER;
        return;
    }
    ret->state = e->state;
    memcpy(ret->note, e->note, sizeof(ret->note));
    if (key->fingerprint[GB_KEY_HEAD] == '-' && e->key.fingerprint[GB_KEY_HEAD] != '-' &&
        e->key.fingerprint[0] == key->fingerprint[0])
        memcpy(ret->body, e->key.fingerprint + GB_KEY_HEAD, sizeof(ret->body));
    if (e->state == GB_KEY_ANSWERED) {
        atomic_fetch_add(&e->answer->refs, 1);
        ret->answer = e->answer;
        k->replays++;
    }
}

int gb_key_claim(struct gb_core *core, const struct gb_key *key, struct gb_key_claim *ret, struct gb_error *err) {
    struct gb_keys *k = core->keys;
    struct gb_key_entry *e;
    int r = 0;

    *ret = (struct gb_key_claim){.state = GB_KEY_CLAIMED};
    pthread_mutex_lock(&k->lock);
    e = gb_map_get(&k->map, key->id);
    if (!e && key->former_id[0])
        e = gb_map_get(&k->map, key->former_id);
    if (!e && key->id[0] == GB_KEY_OF)
        e = gb_map_get(&k->of, key->id + GB_KEY_SESSION);
    if (e && e->state != GB_KEY_UNDER_WAY && e->expires_at_us <= now_of(k)) {
        drop_locked(k, e);
        e = NULL;
    }
    if (e) {
        look_locked(k, e, key, ret);
    } else {
        make_room_locked(k);
        if (k->map.count >= k->max)
            r = gb_error_set(err, GB_ERR_SATURATED,
                             "%" PRIu64 " requests with a key are under way, the permitted number "
                             "(--max-idempotency-keys); try again later",
                             k->max);
        else if (!add_locked(k, key))
            r = gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    }
    pthread_mutex_unlock(&k->lock);
    return r;
}

void gb_key_describe(struct gb_core *core, const struct gb_key *key) {
    struct gb_key_entry *e;

    pthread_mutex_lock(&core->keys->lock);
    e = gb_map_get(&core->keys->map, key->id);
    if (e)
        memcpy(e->key.fingerprint, key->fingerprint, sizeof(e->key.fingerprint));
    pthread_mutex_unlock(&core->keys->lock);
}

void gb_key_note(struct gb_core *core, const struct gb_key *key, const char *note) {
    struct gb_key_entry *e;

    pthread_mutex_lock(&core->keys->lock);
    e = gb_map_get(&core->keys->map, key->id);
    if (e)
        snprintf(e->note, sizeof(e->note), "%s", note);
    pthread_mutex_unlock(&core->keys->lock);
}

struct gb_store_mark gb_key_mark(struct gb_core *core, const struct gb_key *key) {
    struct gb_store_mark mark = {.expires_at_us = gb_wall_us() + core->keys->ttl_us};

    memcpy(mark.key, key->id, sizeof(mark.key));
    memcpy(mark.fingerprint, key->fingerprint, sizeof(mark.fingerprint));
    return mark;
}

/* An answer on its way to the database. */
struct keeping {
    struct gb_core *core;
    struct gb_key key;
    struct gb_idempotency_reply *answer;
    gb_store_done_fn *done;
    void *arg;
};

static void kept(void *arg, const struct gb_error *error) {
    struct keeping *keeping = arg;
    struct gb_keys *k = keeping->core->keys;
    struct gb_key_entry *e;

    pthread_mutex_lock(&k->lock);
    e = gb_map_get(&k->map, keeping->key.id);
    if (e && !error) {
        e->answer = keeping->answer;
        keeping->answer = NULL;
        k->bytes += weight(e->answer);
    }
    if (e)
        set_state_locked(k, e, error ? GB_KEY_UNANSWERED : GB_KEY_ANSWERED);
    pthread_mutex_unlock(&k->lock);
    keeping->done(keeping->arg, error);
    gb_idempotency_reply_unref(keeping->answer);
    gb_core_leave(keeping->core);
    free(keeping);
}

void gb_key_keep(struct gb_core *core, const struct gb_key *key, struct gb_idempotency_reply *answer,
                 gb_store_done_fn *done, void *arg) {
    struct keeping *keeping = malloc(sizeof(*keeping));
    struct gb_store_idempotency_reply rec;
    struct gb_error err = GB_ERROR_INIT;

    if (!keeping) {
        gb_key_give_up(core, key, true);
        gb_idempotency_reply_unref(answer);
        gb_no_memory(&err);
        done(arg, &err);
        return;
    }
    *keeping = (struct keeping){.core = core, .key = *key, .answer = answer, .done = done, .arg = arg};
    rec = (struct gb_store_idempotency_reply){.mark = gb_key_mark(core, key),
                                              .status = answer->status,
                                              .headers = answer->headers,
                                              .body = answer->body,
                                              .body_len = answer->body_len};
    gb_core_enter(core);
    gb_disks_point(core, GB_DISK_OP_before_key);
    gb_store_put_idempotency_reply(core->store, &rec, now_of(core->keys), core->keys->max, kept, keeping);
}

void gb_key_give_up(struct gb_core *core, const struct gb_key *key, bool unsure) {
    struct gb_keys *k = core->keys;
    struct gb_key_entry *e;

    pthread_mutex_lock(&k->lock);
    e = gb_map_get(&k->map, key->id);
    if (e && unsure)
        set_state_locked(k, e, GB_KEY_UNANSWERED);
    else if (e)
        drop_locked(k, e);
    pthread_mutex_unlock(&k->lock);
}

/* --- from node to node -------------------------------------------------------------------------------------------- */

static bool is_of(const char *id, int64_t session) {
    char begin[65];

    gb_key_id_write(id[0], session, "", begin);
    return (id[0] == GB_KEY_WITHIN || id[0] == GB_KEY_OF) && strncmp(id, begin, GB_KEY_SESSION) == 0;
}

static int by_change(const void *a, const void *b) {
    const struct gb_key_entry *const *x = a;
    const struct gb_key_entry *const *y = b;

    return ((*x)->change > (*y)->change) - ((*x)->change < (*y)->change);
}

static void add_copy(struct gb_key_page *page, const struct gb_key_entry *e, int64_t now_us) {
    struct gb_key_copy *copy = &page->items[page->count++];

    *copy = (struct gb_key_copy){.left_us = e->expires_at_us - now_us, .answer = e->answer};
    copy->id[0] = e->key.id[0];
    memcpy(copy->id + 1, e->key.id + GB_KEY_SESSION, sizeof(copy->id) - 1);
    memcpy(copy->fingerprint, e->key.fingerprint, sizeof(copy->fingerprint));
    if (e->answer)
        atomic_fetch_add(&e->answer->refs, 1);
}

/* list: room for all entries. */
static void fill_locked(struct gb_keys *k, int64_t session, bool last, uint64_t bytes_max, struct gb_key_entry **list,
                        struct gb_key_page *ret) {
    int64_t now_us = now_of(k);
    struct gb_key_entry *e;
    uint64_t bytes = 0;
    size_t unsure = 0;
    size_t n = 0;
    size_t i;

    for (e = k->first; e; e = e->next) {
        if (!is_of(e->key.id, session) || e->expires_at_us <= now_us)
            continue;
        if (e->change > ret->after)
            list[n++] = e;
        ret->open = ret->open || (e->state == GB_KEY_UNDER_WAY && e->carried_out);
        unsure += e->state == GB_KEY_UNDER_WAY && (e->carried_out || e->intended);
    }
    if (n > 0)
        qsort(list, n, sizeof(struct gb_key_entry *), by_change);
    for (i = 0; i < n && ret->count < GB_KEYS_PAGE && (i == 0 || bytes + weight(list[i]->answer) <= bytes_max); i++) {
        bytes += weight(list[i]->answer);
        ret->after = list[i]->change;
        add_copy(ret, list[i], now_us);
    }
    ret->more = i < n || (last && ret->count + unsure > GB_KEYS_PAGE && ret->count > 0);
    for (e = k->first; e && last && !ret->more && ret->count < GB_KEYS_PAGE; e = e->next)
        if (is_of(e->key.id, session) && e->state == GB_KEY_UNDER_WAY && (e->carried_out || e->intended))
            add_copy(ret, e, now_us);
}

int gb_keys_page(struct gb_core *core, int64_t session, uint64_t after, bool last, uint64_t bytes_max,
                 struct gb_key_page *ret, struct gb_error *err) {
    struct gb_keys *k = core->keys;
    struct gb_key_entry **list;

    ret->count = 0;
    ret->after = after;
    ret->more = ret->open = false;
    pthread_mutex_lock(&k->lock);
    list = malloc((k->map.count + 1) * sizeof(struct gb_key_entry *));
    if (list)
        fill_locked(k, session, last, bytes_max, list, ret);
    pthread_mutex_unlock(&k->lock);
    free(list);
    return list ? 0 : gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
}

void gb_key_page_done(struct gb_key_page *page) {
    size_t i;

    for (i = 0; i < page->count; i++)
        gb_idempotency_reply_unref(page->items[i].answer);
}

static struct gb_key_entry *bring_locked(struct gb_keys *k, const struct gb_key *key, const struct gb_key_copy *copy,
                                         int64_t expires_at_us) {
    struct gb_key_entry *e = gb_map_get(&k->map, key->id);

    if (e)
        drop_locked(k, e);
    make_room_locked(k);
    e = k->map.count < k->max ? add_locked(k, key) : NULL;
    if (!e)
        return NULL;
    e->expires_at_us = expires_at_us;
    e->answer = copy->answer;
    if (e->answer)
        atomic_fetch_add(&e->answer->refs, 1);
    k->bytes += weight(e->answer);
    set_state_locked(k, e, e->answer ? GB_KEY_ANSWERED : GB_KEY_UNANSWERED);
    return e;
}

int gb_key_bring(struct gb_core *core, int64_t session, const struct gb_key_copy *copy, gb_store_done_fn *done,
                 void *arg, struct gb_error *err) {
    const struct gb_idempotency_reply *a = copy->answer;
    struct gb_store_idempotency_reply rec = {.headers = ""};
    struct gb_keys *k = core->keys;
    struct gb_key key = {.former = ""};
    bool known;

    gb_key_id_write(copy->id[0], session, copy->id + 1, key.id);
    memcpy(key.fingerprint, copy->fingerprint, sizeof(key.fingerprint));
    memcpy(rec.mark.key, key.id, sizeof(rec.mark.key));
    memcpy(rec.mark.fingerprint, key.fingerprint, sizeof(rec.mark.fingerprint));
    rec.mark.expires_at_us = gb_wall_us() + (copy->left_us < k->ttl_us ? copy->left_us : k->ttl_us);
    if (a) {
        rec.status = a->status;
        rec.headers = a->headers;
        rec.body = a->body;
        rec.body_len = a->body_len;
    }
    pthread_mutex_lock(&k->lock);
    known = bring_locked(k, &key, copy, rec.mark.expires_at_us) != NULL;
    pthread_mutex_unlock(&k->lock);
    if (!known)
        return gb_error_set(err, GB_ERR_SATURATED, "no room for the keys of the session's requests; try again later");
    gb_store_put_idempotency_reply(core->store, &rec, now_of(k), k->max, done, arg);
    return 0;
}

void gb_keys_drop(struct gb_core *core, int64_t session) {
    struct gb_keys *k = core->keys;
    struct gb_key_entry *e;
    struct gb_key_entry *next;

    pthread_mutex_lock(&k->lock);
    for (e = k->first; e; e = next) {
        next = e->next;
        if (e->key.id[0] == GB_KEY_WITHIN && is_of(e->key.id, session) && e->state != GB_KEY_UNDER_WAY)
            drop_locked(k, e);
    }
    pthread_mutex_unlock(&k->lock);
}

void gb_key_stats(struct gb_core *core, struct gb_key_stats *ret) {
    pthread_mutex_lock(&core->keys->lock);
    *ret = (struct gb_key_stats){
        .kept = core->keys->map.count, .under_way = core->keys->under_way, .replays = core->keys->replays};
    pthread_mutex_unlock(&core->keys->lock);
}
