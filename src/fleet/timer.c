#include "fleet/timer.h"

#include <stddef.h>
#include <time.h>

#include "base/clock.h"

uint64_t gb_boot_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * GB_NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t gb_boot_ms(void) {
    return gb_boot_ns() / GB_NS_PER_MS;
}

void gb_timer_clear(struct gb_timers *timers, struct gb_timer *timer) {
    struct gb_timer **at = &timers->first;

    if (!timer->set)
        return;
    while (*at && *at != timer)
        at = &(*at)->next;
    if (*at)
        *at = timer->next;
    timer->set = false;
}

void gb_timer_set(struct gb_timers *timers, struct gb_timer *timer, uint64_t at_ms, void (*fn)(void *arg), void *arg) {
    struct gb_timer **at = &timers->first;

    gb_timer_clear(timers, timer);
    while (*at && (*at)->at_ms <= at_ms)
        at = &(*at)->next;
    *timer = (struct gb_timer){.at_ms = at_ms, .fn = fn, .arg = arg, .next = *at, .set = true};
    *at = timer;
}

uint64_t gb_timers_run(struct gb_timers *timers, uint64_t most_ms) {
    uint64_t now = gb_boot_ms();
    uint64_t left;

    while (timers->first && timers->first->at_ms <= now) {
        struct gb_timer *timer = timers->first;

        timers->first = timer->next;
        timer->set = false;
        timer->fn(timer->arg);
    }
    if (!timers->first)
        return most_ms;
    now = gb_boot_ms();
    left = timers->first->at_ms > now ? timers->first->at_ms - now : 0;
    return left < most_ms ? left : most_ms;
}
