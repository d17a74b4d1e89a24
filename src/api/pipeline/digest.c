/* Digests and content codings of bodies: the headers that ask for them, the filters that check and decode as bytes
 * arrive, and digests of downloads, each computed once. */
#include "api/pipeline/digest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/context.h"
#include "api/pipeline/conditional.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/thread.h"
#include "http/message/fields.h"

/* --- kept --------------------------------------------------------------------------------------------------------- */

struct gb_digests *gb_digests_new(void) {
    struct gb_digests *digests = calloc(1, sizeof(*digests));

    if (!digests)
        return NULL;
    gb_mutex_init(&digests->lock);
    digests->kept = calloc(GB_DIGESTS_KEPT, sizeof(*digests->kept));
    if (digests->kept)
        return digests;
    gb_digests_free(digests);
    return NULL;
}

void gb_digests_free(struct gb_digests *digests) {
    if (!digests)
        return;
    free(digests->kept);
    pthread_mutex_destroy(&digests->lock);
    free(digests);
}

static struct gb_digest_kept *find_locked(struct gb_digests *digests, const char *tag, enum gb_digest_alg alg) {
    unsigned i;

    for (i = 0; i < digests->count; i++) {
        if (digests->kept[i].digest.alg == alg && strcmp(digests->kept[i].tag, tag) == 0)
            return &digests->kept[i];
    }
    return NULL;
}

void gb_digests_keep(struct gb_digests *digests, const char *tag, const struct gb_digest *digest) {
    struct gb_digest_kept *kept;

    pthread_mutex_lock(&digests->lock);
    if (!find_locked(digests, tag, digest->alg)) {
        kept = &digests->kept[digests->next];
        digests->next = (digests->next + 1) % GB_DIGESTS_KEPT;
        if (digests->count < GB_DIGESTS_KEPT)
            digests->count++;
        strncpy(kept->tag, tag, sizeof(kept->tag) - 1);
        kept->digest = *digest;
    }
    pthread_mutex_unlock(&digests->lock);
}

bool gb_digests_find(struct gb_digests *digests, const char *tag, enum gb_digest_alg alg, struct gb_digest *ret) {
    const struct gb_digest_kept *kept;

    pthread_mutex_lock(&digests->lock);
    kept = find_locked(digests, tag, alg);
    if (kept)
        *ret = kept->digest;
    pthread_mutex_unlock(&digests->lock);
    return kept != NULL;
}

/* --- computed ----------------------------------------------------------------------------------------------------- */

/* Ends with the call, which may be later than the request; the digest is kept all the same. */
struct job {
    struct gb_http_request *request; /* a reference */
    struct gb_digests *digests;
    struct gb_scan_call *call; /* borrowed */
    enum gb_digest_alg alg;
    int64_t id;
    int64_t generation;
    int64_t version;
    char tag[GB_ETAG_SIZE];
};

struct wait {
    struct gb_scan_call *call;
    gb_http_handler *handler;
};

static void done(void *arg) {
    struct job *job = arg;
    const struct gb_scan_call *call = job->call;
    const struct gb_buffer_rec *read = &call->buffer;

    /* The buffer was replaced before it was read; the head belongs to bytes that are gone. */
    if (call->base.error.code == GB_OK && read->id == job->id && read->generation == job->generation &&
        read->version == job->version)
        gb_digests_keep(job->digests, job->tag, &call->digest[job->alg]);
    gb_http_wake(job->request);
    gb_http_request_unref(job->request);
    free(job);
}

static void wait_free(void *state) {
    struct wait *wait = state;

    gb_call_unref(&wait->call->base);
    free(wait);
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct wait *wait = request->state;
    gb_http_handler *handler = wait->handler;

    if (!atomic_load(&wait->call->base.finished)) {
        if (!request->timed_out)
            return GB_STEP_WAIT;
        gb_error_set(err, GB_ERR_TIMED_OUT,
                     "the digest was not ready in the permitted time; it is kept when it is: ask again, or without "
                     "Want-Repr-Digest");
        return GB_STEP_ERROR;
    }
    if (wait->call->base.error.code != GB_OK) {
        *err = wait->call->base.error;
        return GB_STEP_ERROR;
    }
    request->state = NULL;
    request->state_free = NULL;
    request->deadline_ns = 0;
    wait_free(wait);
    return handler(request, response, err);
}

static struct job *job_new(struct gb_http_request *request, const struct gb_representation *what,
                           enum gb_digest_alg alg) {
    struct job *job = calloc(1, sizeof(*job));

    if (!job)
        return NULL;
    job->digests = gb_api_of(request)->digests;
    job->alg = alg;
    job->id = what->rec->id;
    job->generation = what->rec->generation;
    job->version = what->rec->version;
    strncpy(job->tag, what->tag, sizeof(job->tag) - 1);
    return job;
}

enum gb_step gb_digest_await(struct gb_http_request *request, const struct gb_representation *what,
                             gb_http_handler *handler, struct gb_http_response *response, struct gb_error *err) {
    struct gb_scan_params params = {.name = what->rec->name,
                                    .stream = {"default"},
                                    .head = what->head,
                                    .head_n = what->head_n,
                                    .choice = what->choice};
    struct wait *wait = calloc(1, sizeof(*wait));
    enum gb_digest_alg alg = GB_DIGEST_SHA256;
    struct job *job = NULL;
    bool wanted;

    if (gb_param_name(request, 0, "session name", &params.session, err) == 0 &&
        gb_query_name(request, "stream", &params.stream, err) >= 0 &&
        gb_digest_wanted(request, &wanted, &alg, err) == 0)
        job = job_new(request, what, alg);
    if (wait && job)
        wait->call = job->call = gb_call_new(sizeof(*job->call), done, job);
    if (!wait || !wait->call) {
        free(wait);
        free(job);
        if (params.choice.free_arg)
            params.choice.free_arg(params.choice.arg);
        gb_error_memory(err, "request");
        return GB_STEP_ERROR;
    }
    job->request = gb_http_request_ref(request);
    params.digests = 1u << alg;
    wait->handler = handler;
    request->state = wait;
    request->state_free = wait_free;
    request->resume = resume;
    /* The deadline counts from the beginning of the request, so that a buffer that is replaced again and again ends the
     * wait. */
    request->deadline_ns = request->started_ns + GB_SYNC_WAIT_MAX_S * GB_NS_PER_S;
    gb_buffer_scan(gb_api_of(request)->core, &params, wait->call);
    return resume(request, response, err);
}

/* --- said --------------------------------------------------------------------------------------------------------- */

int gb_digest_missing(const struct gb_http_request *request, const struct gb_representation *what,
                      struct gb_error *err) {
    struct gb_digest digest;
    enum gb_digest_alg alg;
    bool wanted;

    if (gb_digest_wanted(request, &wanted, &alg, err) < 0)
        return -1;
    return wanted && !gb_digests_find(gb_api_of(request)->digests, what->tag, alg, &digest);
}

int gb_digest_headers(const struct gb_http_request *request, const char *tag, bool whole,
                      struct gb_http_response *response, struct gb_error *err) {
    char text[GB_BASE64_SIZE_MAX];
    struct gb_digest digest;
    enum gb_digest_alg alg;
    bool wanted;

    if (gb_digest_wanted(request, &wanted, &alg, err) < 0)
        return -1;
    if (!wanted || !gb_digests_find(gb_api_of(request)->digests, tag, alg, &digest))
        return 0;
    gb_digest_text(&digest, text);
    if (gb_http_response_header(response, err, "Repr-Digest", "%s=:%s:", gb_digest_name(alg), text) < 0)
        return -1;
    if (!whole || !gb_http_header(request, "Want-Content-Digest"))
        return 0;
    return gb_http_response_header(response, err, "Content-Digest", "%s=:%s:", gb_digest_name(alg), text);
}

/* --- fields of heads ---------------------------------------------------------------------------------------------- */

/* Reads the headers of RFC 9530. */

#define WANTED_MAX 10 /* the strongest preference */

static int malformed(const char *header, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_MALFORMED_REQUEST,
                        "%s is no dictionary of digests; it reads as sha-256=:BASE64:, and so may sha-512", header);
}

/* --- of uploads --------------------------------------------------------------------------------------------------- */

/* A later digest of that name replaces an earlier one. */
static void keep(const char *header, const struct gb_digest *digest, struct gb_filters *ret) {
    unsigned i;

    for (i = 0; i < ret->digests; i++) {
        if (ret->digest[i].header == header && ret->digest[i].digest.alg == digest->alg)
            break;
    }
    ret->digest[i].header = header;
    ret->digest[i].digest = *digest;
    if (i == ret->digests)
        ret->digests++;
}

static int add_line(const char *header, const char *line, struct gb_filters *ret, bool *ret_given,
                    struct gb_error *err) {
    struct gb_field field;
    struct gb_digest digest;
    enum gb_digest_alg alg;
    int r;

    while ((r = gb_field_next(&line, &field)) > 0) {
        *ret_given = true;
        if (!gb_digest_find(field.key, field.key_n, &alg))
            continue;
        if (field.type != GB_FIELD_BYTES || !gb_digest_parse(alg, field.text, field.text_n, &digest))
            return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "%s: %s is :BASE64: of %zu bytes, and this is not",
                                header, gb_digest_name(alg), gb_digest_size(alg));
        keep(header, &digest, ret);
    }
    return r < 0 ? malformed(header, err) : 0;
}

static int read_header(const struct gb_http_request *request, const char *header, struct gb_filters *ret,
                       struct gb_error *err) {
    unsigned before = ret->digests;
    bool given = false;
    const char *line;
    unsigned at = 0;

    while ((line = gb_http_header_next(request, header, &at))) {
        if (add_line(header, line, ret, &given, err) < 0)
            return -1;
    }
    /* RFC 9530 lets a recipient ignore unknown algorithms. If no algorithm can be checked, the request is refused. */
    if (given && ret->digests == before)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s names no algorithm that is known here: sha-256, sha-512",
                            header);
    return 0;
}

/* Reads Content-Digest and Repr-Digest. */
static int digests_read(const struct gb_http_request *request, struct gb_filters *ret, struct gb_error *err) {
    if (read_header(request, "Content-Digest", ret, err) < 0)
        return -1;
    return read_header(request, "Repr-Digest", ret, err);
}

/* --- of downloads ------------------------------------------------------------------------------------------------- */

static int wish_line(const char *header, const char *line, int64_t wish[GB_DIGEST_ALGS], struct gb_error *err) {
    struct gb_field field;
    enum gb_digest_alg alg;
    int r;

    while ((r = gb_field_next(&line, &field)) > 0) {
        if (field.type != GB_FIELD_INTEGER || field.integer < 0 || field.integer > WANTED_MAX)
            return gb_error_set(err, GB_ERR_MALFORMED_REQUEST,
                                "%s gives each algorithm a number from 0 (no) to 10 (best)", header);
        if (gb_digest_find(field.key, field.key_n, &alg))
            wish[alg] = field.integer;
    }
    return r < 0 ? gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "%s is no dictionary; it reads as sha-256=10", header)
                 : 0;
}

int gb_digest_wanted(const struct gb_http_request *request, bool *ret_wanted, enum gb_digest_alg *ret,
                     struct gb_error *err) {
    static const char *const names[] = {"Want-Repr-Digest", "Want-Content-Digest"};
    int64_t best = 0;
    unsigned h;
    unsigned i;

    *ret_wanted = false;
    for (h = 0; h < 2 && !*ret_wanted; h++) {
        int64_t wish[GB_DIGEST_ALGS] = {0};
        const char *line;
        unsigned at = 0;

        while ((line = gb_http_header_next(request, names[h], &at))) {
            if (wish_line(names[h], line, wish, err) < 0)
                return -1;
        }
        for (i = 0; i < GB_DIGEST_ALGS; i++) {
            if (wish[i] <= best)
                continue;
            best = wish[i];
            *ret = (enum gb_digest_alg)i;
            *ret_wanted = true;
        }
    }
    return 0;
}

/* --- digests in a JSON body --------------------------------------------------------------------------------------- */

int gb_digest_unknown(const char *name, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];

    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "there is no algorithm \"%s\"; permitted: sha-256, sha-512",
                        gb_word_quote(name, strlen(name), quoted));
}

int gb_digest_set_read(const json_t *body, struct gb_digest_set *ret, struct gb_error *err) {
    const json_t *object = NULL;
    enum gb_digest_alg alg;
    const char *name;
    json_t *value;

    if (gb_json_child(body, "digest", &object, err) < 0)
        return -1;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        if (!gb_digest_find(name, strlen(name), &alg))
            return gb_digest_unknown(name, err);
        if (!json_is_string(value))
            return gb_error_set(err, GB_ERR_WRONG_TYPE, "the digest '%s' must be a string", gb_digest_name(alg));
        if (!gb_digest_parse(alg, json_string_value(value), json_string_length(value), &ret->digest[alg]))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the digest '%s' must be the base64 of %zu bytes",
                                gb_digest_name(alg), gb_digest_size(alg));
        ret->given |= 1u << alg;
    }
    return 0;
}

/* --- a body with digests ------------------------------------------------------------------------------------------ */

/* A body whose digest the headers promise: hashed while its bytes are in the cache, compared before the inner sink's
 * end. */

/* Bytes that are hashed in one go; then other requests of the same thread have their turn. */
#define TURN_BYTES (2u << 20)

struct hashing {
    struct gb_http_sink sink; /* first */
    struct gb_http_request *request;
    struct gb_http_sink *inner;
    struct gb_filters filters;
    struct gb_hash *hash[GB_DIGEST_ALGS]; /* NULL: not asked for */
    const void *room;
    size_t turn;
};

static int hashing_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct hashing *s = (struct hashing *)sink;
    int r;

    if (s->turn >= TURN_BYTES) {
        s->turn = 0;
        gb_http_wake(s->request);
        return 0;
    }
    r = s->inner->room(s->inner, ret_ptr, ret_n, err);
    if (r > 0)
        s->room = *ret_ptr;
    return r;
}

static int hashing_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    struct hashing *s = (struct hashing *)sink;
    unsigned i;

    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (s->hash[i] && gb_hash_add(s->hash[i], s->room, n, err) < 0)
            return -1;
    }
    s->turn += n;
    return s->inner->fill(s->inner, n, err);
}

static void hashing_pause(struct gb_http_sink *sink, bool stalled) {
    struct hashing *s = (struct hashing *)sink;

    if (s->inner->pause)
        s->inner->pause(s->inner, stalled);
}

static void hashing_free(struct gb_http_sink *sink) {
    struct hashing *s = (struct hashing *)sink;
    unsigned i;

    if (s->inner) {
        s->inner->failed = sink->failed;
        s->inner->free(s->inner);
    }
    for (i = 0; i < GB_DIGEST_ALGS; i++)
        gb_hash_free(s->hash[i]);
    free(s);
}

static int compare(struct hashing *s, struct gb_error *err) {
    struct gb_digest actual[GB_DIGEST_ALGS];
    char expected_text[GB_BASE64_SIZE_MAX];
    char actual_text[GB_BASE64_SIZE_MAX];
    unsigned i;

    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (s->hash[i])
            gb_hash_get(s->hash[i], &actual[i]);
    }
    for (i = 0; i < s->filters.digests; i++) {
        const struct gb_digest *expected = &s->filters.digest[i].digest;

        if (gb_digest_equal(expected, &actual[expected->alg]))
            continue;
        gb_digest_text(expected, expected_text);
        gb_digest_text(&actual[expected->alg], actual_text);
        return gb_error_set(err, GB_ERR_DIGEST_MISMATCH,
                            "%s: expected %s=:%s:, the body has %s=:%s:", s->filters.digest[i].header,
                            gb_digest_name(expected->alg), expected_text, gb_digest_name(expected->alg), actual_text);
    }
    return 0;
}

static enum gb_step hashing_end(struct gb_http_sink *sink, struct gb_http_request *request,
                                struct gb_http_response *response, struct gb_error *err) {
    struct hashing *s = (struct hashing *)sink;
    struct gb_http_sink *inner = s->inner;
    bool equal = compare(s, err) == 0;

    if (!equal && !inner->refused)
        return GB_STEP_ERROR;
    s->inner = NULL;
    request->sink = inner;
    hashing_free(&s->sink);
    return equal ? inner->end(inner, request, response, err) : inner->refused(inner, request, err);
}

static struct gb_http_sink *digest_sink_new(struct gb_http_request *request, const struct gb_filters *filters,
                                            struct gb_http_sink *inner, struct gb_error *err) {
    struct hashing *s = calloc(1, sizeof(*s));
    unsigned i;

    if (!s) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for a digest; try again later");
        return NULL;
    }
    s->sink = (struct gb_http_sink){
        .room = hashing_room, .fill = hashing_fill, .pause = hashing_pause, .end = hashing_end, .free = hashing_free};
    s->request = request;
    s->filters = *filters;
    for (i = 0; i < filters->digests; i++) {
        enum gb_digest_alg alg = filters->digest[i].digest.alg;

        if (!s->hash[alg])
            s->hash[alg] = gb_hash_new(alg, err);
        if (!s->hash[alg]) {
            hashing_free(&s->sink);
            return NULL;
        }
    }
    s->inner = inner;
    return &s->sink;
}

/* --- a body in a content coding ----------------------------------------------------------------------------------- */

/* A body in a content coding: gathered in pieces, decoded straight into the room that the inner sink gives. */

#define IN_BYTES (128u << 10)
/* Bytes that are decoded in one go; then other requests of the same thread have their turn. */
#define DECODED_TURN_BYTES (512u << 10)

struct decoding {
    struct gb_http_sink sink; /* first */
    struct gb_api *api;
    struct gb_http_request *request;
    struct gb_http_sink *inner;
    struct gb_decoder *decoder;
    const char *at; /* of in, not decoded yet */
    size_t left;
    bool full; /* input is left, or the decoder has kept something back */
    bool held; /* one byte is decoded and has no room yet: room is asked for only when there are bytes to put there */
    char byte;
    uint64_t made;
    size_t turn;
    char in[IN_BYTES];
};

int gb_filters_permit(const struct gb_api *api, uint64_t bytes, struct gb_error *err) {
    uint64_t most = api->limits.expanded_bytes;

    if (bytes <= most)
        return 0;
    gb_error_numbers(err, most, 0, bytes);
    return gb_error_set(err, GB_ERR_BODY_TOO_LARGE,
                        "the body expands to more than the %" PRIu64
                        " bytes of the daemon's --max-expanded; send it in "
                        "parts, or without Content-Encoding",
                        most);
}

static int decode(struct decoding *s, char *out, size_t n, size_t *ret_made, struct gb_error *err) {
    if (gb_decoder_run(s->decoder, &s->at, &s->left, out, n, ret_made, err) < 0)
        return -1;
    s->made += *ret_made;
    s->turn += *ret_made;
    return gb_filters_permit(s->api, s->made, err);
}

/* Decodes the bytes that have come. Returns 1 when no byte is left, 0 to wait for a wake, or -1. */
static int pump(struct decoding *s, struct gb_error *err) {
    size_t made;
    size_t n;
    void *room;
    int r;

    while (s->full) {
        if (s->turn >= DECODED_TURN_BYTES) {
            s->turn = 0;
            gb_http_wake(s->request);
            return 0;
        }
        if (!s->held) {
            if (decode(s, &s->byte, 1, &made, err) < 0)
                return -1;
            s->held = made > 0;
            s->full = s->held;
            continue;
        }
        r = s->inner->room(s->inner, &room, &n, err);
        if (r <= 0)
            return r;
        *(char *)room = s->byte;
        s->held = false;
        made = 0;
        if (n > 1 && decode(s, (char *)room + 1, n - 1, &made, err) < 0)
            return -1;
        s->full = made == n - 1;
        if (s->inner->fill(s->inner, made + 1, err) < 0)
            return -1;
    }
    return 1;
}

static int decoding_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct decoding *s = (struct decoding *)sink;
    int r = pump(s, err);

    if (r <= 0)
        return r;
    *ret_ptr = s->in;
    *ret_n = sizeof(s->in);
    return 1;
}

/* The bytes are decoded when room is next asked for: that call may wait. */
static int decoding_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    struct decoding *s = (struct decoding *)sink;

    (void)err;
    s->at = s->in;
    s->left = n;
    s->full = n > 0;
    return 0;
}

static void decoding_pause(struct gb_http_sink *sink, bool stalled) {
    struct decoding *s = (struct decoding *)sink;

    if (s->inner->pause)
        s->inner->pause(s->inner, stalled);
}

static int decoding_arrived(struct gb_http_sink *sink, struct gb_error *err) {
    struct decoding *s = (struct decoding *)sink;

    return s->inner->arrived ? s->inner->arrived(s->inner, err) : 0;
}

static void decoding_free(struct gb_http_sink *sink) {
    struct decoding *s = (struct decoding *)sink;

    if (s->inner) {
        s->inner->failed = sink->failed;
        s->inner->free(s->inner);
    }
    gb_decoder_free(s->decoder);
    atomic_fetch_sub(&s->api->decoders, 1);
    free(s);
}

/* Also runs at each wake until everything is decoded. Then the inner sink takes the place of this one. */
static enum gb_step finish(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct decoding *s = (struct decoding *)request->sink;
    struct gb_http_sink *inner = s->inner;
    uint64_t before = s->made;
    int r = pump(s, err);

    if (r == 0 && decoding_arrived(&s->sink, err) < 0)
        return GB_STEP_ERROR;
    if (r == 0 && !(request->timed_out && s->made == before)) {
        request->timed_out = false;
        if (s->made != before)
            request->deadline_ns = 0; /* as long as the decoder moves */
        return GB_STEP_WAIT;
    }
    if (r == 0)
        gb_error_set(err, GB_ERR_TIMED_OUT, "the bytes came, but the device did not take them in the permitted time");
    if (r <= 0 || gb_decoder_end(s->decoder, err) < 0)
        return GB_STEP_ERROR;
    s->inner = NULL;
    request->sink = inner;
    decoding_free(&s->sink);
    return inner->end(inner, request, response, err);
}

static enum gb_step decoding_end(struct gb_http_sink *sink, struct gb_http_request *request,
                                 struct gb_http_response *response, struct gb_error *err) {
    (void)sink;
    return gb_http_await(request, finish, response, err);
}

/* The sink that decodes; digest_sink_new makes the one that compares digests. Each takes inner only on success. */
static struct gb_http_sink *encoding_sink_new(struct gb_http_request *request, enum gb_coding coding,
                                              struct gb_http_sink *inner, struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct decoding *s;

    if (atomic_fetch_add(&api->decoders, 1) >= api->limits.decoders) {
        atomic_fetch_sub(&api->decoders, 1);
        gb_error_set(err, GB_ERR_SATURATED,
                     "%u bodies are being decoded, the daemon's --max-decoders; try again later, or send without "
                     "Content-Encoding",
                     api->limits.decoders);
        return NULL;
    }
    s = calloc(1, sizeof(*s));
    if (s)
        s->decoder = gb_decoder_new(coding, err);
    if (!s || !s->decoder) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory to decode the body; try again later");
        atomic_fetch_sub(&api->decoders, 1);
        free(s);
        return NULL;
    }
    s->sink = (struct gb_http_sink){.room = decoding_room,
                                    .fill = decoding_fill,
                                    .pause = decoding_pause,
                                    .arrived = decoding_arrived,
                                    .end = decoding_end,
                                    .free = decoding_free};
    s->api = api;
    s->request = request;
    s->inner = inner;
    return &s->sink;
}

/* --- Content-Encoding --------------------------------------------------------------------------------------------- */

static bool is(const char *text, size_t n, const char *word) {
    return strlen(word) == n && strncasecmp(text, word, n) == 0;
}

static int add_coding(const char *text, size_t n, struct gb_filters *ret, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];
    enum gb_coding coding;

    if (is(text, n, "identity"))
        return 0;
    if (is(text, n, "gzip") || is(text, n, "x-gzip"))
        coding = GB_CODING_GZIP;
    else if (is(text, n, "deflate"))
        coding = GB_CODING_DEFLATE;
    else if (is(text, n, "zstd"))
        coding = GB_CODING_ZSTD;
    else
        return gb_error_set(err, GB_ERR_UNSUPPORTED_MEDIA_TYPE,
                            "the Content-Encoding \"%s\" is not supported here; send %s, or the bytes as they are",
                            gb_word_quote(text, n, quoted), GB_CODINGS_TAKEN);
    if (ret->codings == GB_CODINGS_MAX)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_MEDIA_TYPE, "a body may be encoded %u times, not more",
                            GB_CODINGS_MAX);
    ret->coding[ret->codings++] = coding;
    ret->coded = true;
    return 0;
}

/* Reads one line of the header: a list of codings. */
static int read_line(const char *at, struct gb_filters *ret, struct gb_error *err) {
    while (*at) {
        size_t n = strcspn(at, ",");
        const char *next = at + n + (at[n] == ',');

        while (n > 0 && (*at == ' ' || *at == '\t')) {
            at++;
            n--;
        }
        while (n > 0 && (at[n - 1] == ' ' || at[n - 1] == '\t'))
            n--;
        if (n > 0 && add_coding(at, n, ret, err) < 0)
            return -1;
        at = next;
    }
    return 0;
}

/* Reads Content-Encoding alone, all lines of the header as one list. */
static int encoding_read(const struct gb_http_request *request, struct gb_filters *ret, struct gb_error *err) {
    const char *line;
    unsigned at = 0;

    while ((line = gb_http_header_next(request, "Content-Encoding", &at))) {
        if (read_line(line, ret, err) < 0)
            return -1;
    }
    return 0;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

int gb_filters_read(const struct gb_http_request *request, struct gb_http_response *response, struct gb_filters *ret,
                    struct gb_error *err) {
    *ret = (struct gb_filters){.codings = 0};
    if (encoding_read(request, ret, err) < 0) {
        gb_http_response_header(response, NULL, "Accept-Encoding", "%s", GB_CODINGS_TAKEN);
        return -1;
    }
    return digests_read(request, ret, err);
}

enum gb_step gb_filters_wrap(struct gb_http_request *request, const struct gb_filters *filters,
                             struct gb_http_sink *inner, struct gb_error *err) {
    struct gb_http_sink *sink = inner;
    struct gb_http_sink *outer;
    unsigned i;

    for (i = 0; sink && i <= filters->codings; i++) {
        outer = sink;
        if (i < filters->codings)
            outer = encoding_sink_new(request, filters->coding[i], sink, err);
        else if (filters->digests > 0)
            outer = digest_sink_new(request, filters, sink, err);
        if (!outer)
            sink->free(sink); /* and what it holds */
        sink = outer;
    }
    if (!sink)
        return GB_STEP_ERROR;
    request->sink = sink;
    return GB_STEP_BODY;
}
