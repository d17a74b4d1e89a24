#include "http/exchange/handoff.h"

#include <unistd.h>

#include "http/tls/tls.h"

void gb_handoff_end(struct gb_conn_slots *slots, const struct gb_handoff *handoff) {
    gb_peer_end(handoff->peer);
    if (handoff->tls)
        gb_tls_end(handoff->tls);
    gb_tls_free(handoff->tls);
    if (handoff->fd >= 0)
        close(handoff->fd);
    gb_conn_slot_end(slots, handoff->source);
}
