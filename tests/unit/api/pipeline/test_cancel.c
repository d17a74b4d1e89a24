/* The call that a detached request waits for, and the way to cancel it: another thread may go that way at any time,
 * under the operations' lock, so that it must be closed before the call goes. The linker puts the functions below
 * before those of the core. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "api/context.h"
#include "api/pipeline/async.h"
#include "api/pipeline/hook.h"
#include "api/pipeline/operations.h"
#include "core/core.h"
#include "core/runtime/call.h"
#include "gb_test.h"
#include "http/server/exchange.h"

static struct gb_exchange *ex;
static struct gb_call *waited_for;
static unsigned gone; /* calls that went, none while it could be cancelled */

uint64_t __wrap_gb_loads_sequence(struct gb_core *core);
bool __wrap_gb_loads_wait(struct gb_core *core, uint64_t sequence, struct gb_load_waiter *waiter);
void __wrap_gb_loads_leave(struct gb_core *core, struct gb_load_waiter *waiter);
void __real_gb_call_unref(struct gb_call *call);
void __wrap_gb_call_unref(struct gb_call *call);

uint64_t __wrap_gb_loads_sequence(struct gb_core *core) {
    (void)core;
    return 0;
}

bool __wrap_gb_loads_wait(struct gb_core *core, uint64_t sequence, struct gb_load_waiter *waiter) {
    (void)core;
    (void)sequence;
    (void)waiter;
    return true;
}

void __wrap_gb_loads_leave(struct gb_core *core, struct gb_load_waiter *waiter) {
    (void)core;
    (void)waiter;
}

void __wrap_gb_call_unref(struct gb_call *call) {
    if (call == waited_for) {
        ck_assert_ptr_null(ex->req.cancel);
        gone++;
    }
    __real_gb_call_unref(call);
}

static enum gb_step reply(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                          struct gb_error *err) {
    (void)request;
    (void)result;
    (void)response;
    (void)err;
    return GB_STEP_REPLY;
}

/* Begins a call that does not end. */
static enum gb_step wait(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    waited_for = gb_async_begin(request, sizeof(*waited_for), err);
    return gb_async_end(request, response, reply, 0, err);
}

/* As a copy whose source has left memory. */
static enum gb_step meet_no_bytes(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_call *call = gb_async_begin(request, sizeof(*call), err);
    struct gb_error why = GB_ERROR_INIT;

    gb_error_set(&why, GB_ERR_NOT_LOADED, "the bytes are not in memory");
    gb_call_finish(call, &why);
    waited_for = call;
    return gb_async_end(request, response, reply, 0, err);
}

/* --- a detached request ------------------------------------------------------------------------------------------- */

static const struct gb_api_limits limits = {.operations_max = 1};
static const struct gb_http_route route = {.body = GB_BODY_NONE};
static struct gb_api api = {.limits = {.operations_max = 1}};
static struct gb_request_hooks hooks = {.api = &api};

static void begin(bool detached) {
    struct gb_error err = GB_ERROR_INIT;

    ex = calloc(1, sizeof(*ex));
    atomic_init(&ex->refs, 1);
    pthread_mutex_init(&ex->wake_lock, NULL);
    ex->req.app = &api;
    ex->req.route = &route;
    ex->req.target = (struct gb_http_text){.s = "/", .len = 1};
    ex->req.detached = detached;
    ex->req.hooks = &hooks;
    api.operations = gb_operations_new(&limits);
    hooks.op = gb_operations_reserve(api.operations, false, &err);
    ck_assert_ptr_nonnull(hooks.op);
    waited_for = NULL;
    gone = 0;
}

static void end(void) {
    ex->req.state_free(ex->req.state);
    gb_operations_give_back(api.operations, hooks.op);
    gb_operations_free(api.operations);
    ck_assert_int_eq(atomic_load(&ex->refs), 1);
    pthread_mutex_destroy(&ex->wake_lock);
    free(ex);
}

START_TEST(bytes_are_not_loaded) {
    struct gb_http_response response = {.status = 200};
    struct gb_error err = GB_ERROR_INIT;

    begin(_i > 0);
    ck_assert_int_eq(gb_loading_run(meet_no_bytes, &ex->req, &response, &err), GB_STEP_WAIT);
    ck_assert_uint_eq(gone, 1);
    end();
}
END_TEST

START_TEST(handler_runs_again) {
    struct gb_http_response response = {.status = 200};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_call *first;

    begin(_i > 0);
    ck_assert_int_eq(wait(&ex->req, &response, &err), GB_STEP_WAIT);
    ck_assert_ptr_nonnull(ex->req.cancel);
    first = waited_for;
    ck_assert_int_eq(wait(&ex->req, &response, &err), GB_STEP_WAIT);
    ck_assert_uint_eq(gone, 1);
    gb_call_finish(first, NULL);
    gb_call_finish(waited_for, NULL);
    ex->req.cancel = NULL;
    end();
}
END_TEST

/* --- a request that ends while it is cancelled -------------------------------------------------------------------- */

static _Thread_local bool ends;
static atomic_bool locks; /* the thread on which the request ends wants a lock, or is through */
static pthread_t ending;

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    if (ends)
        atomic_store(&locks, true);
    return __real_pthread_mutex_lock(mutex);
}

static enum gb_step end_cancelled(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    (void)request;
    (void)response;
    gb_error_set(err, GB_ERR_CANCELLED, "the work was cancelled");
    return GB_STEP_ERROR;
}

static void *run_to_the_end(void *arg) {
    struct gb_http_response response = {.status = 200};
    struct gb_error err = GB_ERROR_INIT;

    (void)arg;
    ends = true;
    ck_assert_int_eq(gb_api_pipeline(end_cancelled, &ex->req, &response, &err), GB_STEP_REPLY);
    atomic_store(&locks, true);
    gb_http_response_done(&response);
    return NULL;
}

/* The work ends on its own thread before this returns. */
static bool cancel(struct gb_http_request *request, bool act) {
    (void)request;
    if (!act)
        return true;
    ck_assert_int_eq(pthread_create(&ending, NULL, run_to_the_end, NULL), 0);
    while (!atomic_load(&locks))
        sched_yield();
    return true;
}

/* It was the client that cancelled it, and not that its session went. */
START_TEST(request_ends_while_it_is_cancelled) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_operation *op;

    begin(true);
    op = hooks.op;
    op->number = 1;
    op->refs = 3; /* the request's, the table's and the test's */
    op->request = &ex->req;
    ex->req.cancel = cancel;
    gb_assert_ok(gb_operation_cancel(api.operations, op, &err), err);
    pthread_join(ending, NULL);
    ck_assert_int_eq(hooks.error.code, GB_ERR_CANCELLED);
    ck_assert_int_eq(op->ended, GB_OPERATION_CANCELLED);
    gb_operation_unref(api.operations, op);
    gb_operations_free(api.operations);
    pthread_mutex_destroy(&ex->wake_lock);
    free(ex);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cancel");

    gb_test_add_loop(suite, "bytes are not loaded", bytes_are_not_loaded, 60, 2);
    gb_test_add_loop(suite, "handler runs again", handler_runs_again, 60, 2);
    gb_test_add(suite, "ends meanwhile", request_ends_while_it_is_cancelled, 60);
    return gb_test_run(suite);
}
