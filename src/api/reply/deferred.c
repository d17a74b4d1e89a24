#include "api/reply/deferred.h"

#include "base/container.h"

static void unref(void *arg) {
    struct gb_deferred *d = arg;

    if (atomic_fetch_sub(&d->refs, 1) == 1)
        d->release(d);
}

static void run(struct gb_core_task *work) {
    struct gb_deferred *d = gb_container_of(work, struct gb_deferred, work);
    struct gb_http_request *request = d->request;

    /* With one reference left the request is over. */
    if (atomic_load(&d->left))
        gb_error_set(&d->error, GB_ERR_CANCELLED, "the client has gone");
    else if (atomic_load(&d->refs) > 1 && d->make(d, &d->error) < 0 && d->error.code == GB_OK)
        gb_error_set(&d->error, GB_ERR_SATURATED, "no memory for the reply; try again later");
    atomic_store(&d->finished, true);
    gb_http_wake(request);
    unref(d);
    gb_http_request_unref(request); /* the server, and what release uses, lives until then */
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_deferred *d = request->state;

    if (!atomic_load(&d->finished)) {
        if (!request->timed_out)
            return GB_STEP_WAIT;
        gb_error_set(err, GB_ERR_TIMED_OUT, "the answer was not ready in the permitted time");
    } else if (d->error.code == GB_OK) {
        return d->reply(d, request, response, err);
    } else {
        *err = d->error;
    }
    gb_http_response_done(response); /* its headers tell of another answer */
    return GB_STEP_ERROR;
}

/* Nothing has changed, so that nothing needs to be undone. */
static bool cancel(struct gb_http_request *request, bool act) {
    struct gb_deferred *d = request->state;

    if (act)
        atomic_store(&d->left, true);
    return true;
}

enum gb_step gb_deferred_start(struct gb_http_request *request, struct gb_deferred *deferred) {
    atomic_init(&deferred->refs, 2);
    atomic_init(&deferred->left, false);
    atomic_init(&deferred->finished, false);
    deferred->api = gb_api_of(request);
    deferred->work.run = run;
    deferred->request = gb_http_request_ref(request);
    request->state = deferred;
    request->state_free = unref;
    request->resume = resume;
    request->cancel = cancel;
    gb_core_run_task(deferred->api->core, &deferred->work);
    return GB_STEP_WAIT;
}
