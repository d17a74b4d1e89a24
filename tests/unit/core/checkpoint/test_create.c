/* Reading bytes from memory for a checkpoint: what is read may arrive at any moment, also between two steps of the job
 * that takes it. The linker puts the functions below before those of the system. */
#include <malloc.h>
#include <stdatomic.h>

#include "core/durable/stored.h"
#include "core/runtime/runtime.h"
#include "durable_fixture.h"
#include "gb_test.h"

/* The job's lock: the first that the end of a read takes. */
static _Atomic(pthread_mutex_t *) job_lock;
static _Thread_local bool learning;

static struct gb_persist *first;             /* a read that has ended and was not reported */
static _Atomic(struct gb_persist *) last;    /* reported as soon as the job has given its lock back once */
static void (*report)(struct gb_persist *p); /* as the creation asked for it */
static void (*core_persist)(struct gb_core *core, struct gb_persist *persist);

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    if (learning && !atomic_load(&job_lock))
        atomic_store(&job_lock, mutex);
    return __real_pthread_mutex_lock(mutex);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex) {
    bool now = !learning && mutex == atomic_load(&job_lock);
    int r = __real_pthread_mutex_unlock(mutex);
    struct gb_persist *p = now ? atomic_exchange(&last, NULL) : NULL;

    if (p)
        report(p);
    return r;
}

/* Both have been read: the first is reported here, the other one by the thread that the first has woken. */
static void read_ended(struct gb_persist *persist) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct gb_persist *before;

    pthread_mutex_lock(&lock);
    before = first;
    first = persist;
    pthread_mutex_unlock(&lock);
    if (!before)
        return;
    atomic_store(&last, before);
    learning = true;
    report(persist);
    learning = false;
}

static void persist(struct gb_core *core, struct gb_persist *persist) {
    report = persist->done;
    persist->done = read_ended;
    core_persist(core, persist);
}

/* A job that ends while it is queued would run once more, in memory that is another's. */
START_TEST(read_arrives_as_the_job_begins_to_run) {
    const struct gb_checkpoint_params params = {.session = {"default"}, .name = {"c"}};
    struct gb_checkpoint_call *call;
    struct core_wake wake;
    struct core_fixture f;

    mallopt(M_PERTURB, 0x5a); /* what is freed is overwritten */
    durable_open(&f, "host");
    durable_put_ok(&f, "x", 1, DURABLE_LARGE, GB_DURABILITY_NONE);
    durable_put_ok(&f, "y", 2, DURABLE_LARGE, GB_DURABILITY_NONE);
    core_persist = f.core->persist;
    f.core->persist = persist;
    core_wake_init(&wake);
    call = gb_call_new(sizeof(*call), core_wake, &wake);
    gb_checkpoint_create(f.core, &params, call);
    core_wake_wait(&wake);
    ck_assert_int_eq(call->base.error.code, GB_OK);
    ck_assert_uint_eq(call->view.buffers, 2);
    ck_assert_ptr_null(atomic_load(&last));
    gb_call_unref(&call->base);
    core_fixture_done(&f); /* when all that was queued has run */
    core_wake_done(&wake);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("create");

    gb_test_add(suite, "read arrives", read_arrives_as_the_job_begins_to_run, 60);
    return gb_test_run(suite);
}
