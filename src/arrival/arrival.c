#include "arrival/arrival.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"

void gb_arrival_init(struct gb_arrival *arrival, const struct gb_arrival_config *config, const struct gb_name *session,
                     const char *who) {
    *arrival = (struct gb_arrival){.config = *config, .session = *session, .bytes_max = UINT64_MAX};
    snprintf(arrival->who, sizeof(arrival->who), "%s", who);
    pthread_mutex_init(&arrival->lock, NULL);
    gb_cond_init(&arrival->woken);
}

void gb_arrival_done(struct gb_arrival *arrival) {
    gb_arrival_items_free(arrival);
    free(arrival->described);
    pthread_cond_destroy(&arrival->woken);
    pthread_mutex_destroy(&arrival->lock);
}

bool gb_arrival_stop(struct gb_arrival *arrival, enum gb_code why, bool act) {
    bool r;

    pthread_mutex_lock(&arrival->lock);
    r = why == GB_ERR_DRAINING || !arrival->decides;
    if (r && act) {
        arrival->why = arrival->stopped ? arrival->why : why;
        arrival->stopped = true;
        pthread_cond_broadcast(&arrival->woken);
    }
    pthread_mutex_unlock(&arrival->lock);
    return r;
}
