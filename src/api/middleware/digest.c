#include "api/middleware/digest.h"

#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/middleware/conditional.h"
#include "api/request/query.h"
#include "api/request/wait.h"
#include "base/clock.h"
#include "base/thread.h"

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
    struct gb_scan_params params = {
        .name = what->rec->name, .stream = {"default"}, .head = what->head, .head_n = what->head_n};
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
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
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
