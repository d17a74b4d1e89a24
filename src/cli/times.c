#include "cli/times.h"

#include <math.h>
#include <string.h>

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

/* How long the last large transfer of the buffer copied, if that was this download: it has the same bytes, unless
 * another client's came in between. Negative: it is not known. */
static double copied_ms(struct gb_cli *cli, const struct gb_cli_name *name, uint64_t bytes, double queue_ms) {
    char target[GB_CLI_PATH];
    json_t *buffer = NULL;
    double copy_ms = -1;
    json_t *last;

    if (gb_cli_target(cli, target, "/v1/sessions/{}/buffers/{}?last_transfer=true", name->session, name->name) == 0)
        buffer = gb_cli_request(cli, "GET", target, NULL);
    last = json_object_get(buffer, "last_transfer");
    if (json_is_object(last) && strcmp(gb_cli_text(last, "direction"), "upload") != 0 &&
        gb_cli_number(last, "bytes") <= (double)bytes && fabs(gb_cli_number(last, "queue_ms") - queue_ms) <= SAME_MS)
        copy_ms = gb_cli_number(last, "copy_ms");
    json_decref(buffer);
    return copy_ms;
}

void gb_cli_times_get(struct gb_cli *cli, const struct gb_cli_name *name, uint64_t bytes) {
    const struct gpubuf_answer *answer = gpubuf_answer_of(cli->client);
    double queue_ms = answer->queue_ms;
    double copy_ms = answer->copy_ms;

    if (!cli->options.verbose || cli->options.connections > 1)
        return;
    put(queue_ms, copy_ms >= 0 ? copy_ms : copied_ms(cli, name, bytes, queue_ms));
}
