/* How a function tells its caller that a wait is over. */
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
