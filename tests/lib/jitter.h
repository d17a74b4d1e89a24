/* Threads moved against each other: before a mutex is locked and after it is given back the thread gives way now and
 * then, for a moment of any length up to some milliseconds, most often a short one. What may happen in another order
 * then does, within seconds. A program that links this needs
 *
 *     -Wl,--wrap=pthread_mutex_lock,--wrap=pthread_mutex_unlock */
#ifndef JITTER_H
#define JITTER_H

#include <stdbool.h>

/* Off at first. [any thread] */
void jitter_set(bool on);

#endif
