#include "cli/times.h"

#include <math.h>

#define SAME_MS 0.001 /* the header gives three digits */

static void put(double queue_ms, double copy_ms) {
    if (queue_ms >= 0 && copy_ms >= 0)
        fprintf(stderr, GB_CLI_TRACE "waited %.3f ms, copied %.3f ms\n", queue_ms, copy_ms);
    else if (queue_ms >= 0)
        fprintf(stderr, GB_CLI_TRACE "waited %.3f ms\n", queue_ms);
}

void gb_cli_times_put(const struct gb_cli *cli) {
    const struct gpubuf_answer *answer = gpubuf_answer_of(cli->client);

    if (cli->options.verbose)
        put(answer->queue_ms, answer->copy_ms);
}

void gb_cli_times_get(struct gb_cli *cli, const struct gb_cli_name *name, uint64_t bytes) {
    const struct gpubuf_answer *answer = gpubuf_answer_of(cli->client);
    double queue_ms = answer->queue_ms;
    double copy_ms = answer->copy_ms;
    struct gpubuf_last_transfer last;

    if (!cli->options.verbose || cli->options.connections > 1)
        return;
    /* It is this one, unless another client's came in between. */
    if (copy_ms < 0 && gpubuf_buffer_last_transfer(cli->client, name->session, name->name, &last, NULL) == 0 &&
        last.known && !last.upload && last.bytes <= bytes && fabs(last.queue_ms - queue_ms) <= SAME_MS)
        copy_ms = last.copy_ms;
    put(queue_ms, copy_ms);
}
