/* Holding streams: a worker stands at a gate. */
#include <stdlib.h>

#include "backend/gate.h"
#include "backend/host/host.h"

struct gb_hold {
    struct gb_gate *gate;
};

int gb_host_stream_hold(struct gb_backend *be, struct gb_stream *stream, struct gb_hold **ret, struct gb_error *err) {
    struct gb_hold *hold = calloc(1, sizeof(*hold));

    if (hold)
        hold->gate = gb_gate_new();
    if (!hold || !hold->gate) {
        free(hold);
        return gb_host_no_memory(err, "cuStreamWaitValue32");
    }
    if (gb_host_stream_call(be, stream, gb_gate_pass, hold->gate, err) < 0) {
        gb_gate_free(hold->gate);
        free(hold);
        return -1;
    }
    *ret = hold;
    return 0;
}

void gb_host_stream_release(struct gb_backend *be, struct gb_hold *hold) {
    (void)be;
    gb_gate_open(hold->gate);
    free(hold);
}
