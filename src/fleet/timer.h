/* The clock of leases, and functions that run later on the fleet's thread. */
#ifndef GB_FLEET_TIMER_H
#define GB_FLEET_TIMER_H

#include <stdbool.h>
#include <stdint.h>

/* Time of a clock that goes on while the machine sleeps, as leases do. */
uint64_t gb_boot_ns(void);
uint64_t gb_boot_ms(void);

/* Embedded by its owner. Zero-initialised is not set. */
struct gb_timer {
    uint64_t at_ms; /* by gb_boot_ms */
    void (*fn)(void *arg);
    void *arg;
    struct gb_timer *next;
    bool set;
};

struct gb_timers {
    struct gb_timer *first; /* the earliest; those of one time in the order in which they were set */
};

/* One that is set already is set anew. */
void gb_timer_set(struct gb_timers *timers, struct gb_timer *timer, uint64_t at_ms, void (*fn)(void *arg), void *arg);
void gb_timer_clear(struct gb_timers *timers, struct gb_timer *timer);
/* Runs those whose time has come; returns the milliseconds to the next, at most `most_ms`. */
uint64_t gb_timers_run(struct gb_timers *timers, uint64_t most_ms);

#endif
