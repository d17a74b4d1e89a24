/* How a function reports to its caller that a wait has ended. */
#ifndef GB_BASE_WAKER_H
#define GB_BASE_WAKER_H

struct gb_waker {
    void (*fn)(void *arg); /* NULL: there is no one to wake */
    void *arg;
};

static inline void gb_waker_run(const struct gb_waker *waker) {
    if (waker->fn)
        waker->fn(waker->arg);
}

#endif
