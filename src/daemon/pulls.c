/* Copies from other daemons: what the options permit, and the threads that bring them. */
#include <stdlib.h>

#include "daemon/daemon.h"
#include "pull/pull.h"

struct gb_daemon_pulls {
    struct gb_pulls *pulls;
    size_t count;
    const char **origin;
    char text[][GB_PULL_ORIGIN_SIZE];
};

int gb_daemon_read_pulls(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_text_list *from = &daemon->options.pull_from;
    struct gb_error why = GB_ERROR_INIT;
    struct gb_daemon_pulls *p;
    size_t i;

    if (from->count == 0 && daemon->options.fleet[0] == '\0')
        return 0;
    p = calloc(1, sizeof *p + from->count * sizeof p->text[0]);
    if (p != NULL)
        p->origin = calloc(from->count + 1, sizeof *p->origin);
    daemon->pulls = p;
    if (p == NULL || p->origin == NULL)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    for (i = 0; i < from->count; i++) {
        if (gb_pull_origin_read(from->items[i], p->text[i], &why) != 0)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--pull-from: %s", why.detail);
        p->origin[p->count++] = p->text[i];
    }
    return 0;
}

int gb_daemon_open_pulls(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
    struct gb_daemon_pulls *p = daemon->pulls;
    const struct gb_pulls_config config = {.core = daemon->core,
                                           .ca_file = o->pull_ca[0] != '\0' ? o->pull_ca : o->fleet_ca,
                                           .version = PACKAGE_VERSION,
                                           .running_max = (unsigned)o->pulls,
                                           .rate_bytes_s = o->pull_rate};

    if (p == NULL)
        return 0;
    if (gb_pulls_open(&config, &p->pulls, err) != 0)
        return -1;
    gb_api_set_pulls(daemon->api, p->pulls, p->origin, p->count);
    return 0;
}

struct gb_pulls *gb_daemon_pulls_of(const struct gb_daemon *daemon) {
    return daemon->pulls != NULL ? daemon->pulls->pulls : NULL;
}

void gb_daemon_close_pulls(struct gb_daemon *daemon) {
    if (daemon->pulls == NULL)
        return;
    gb_pulls_close(daemon->pulls->pulls);
    free(daemon->pulls->origin);
    free(daemon->pulls);
    daemon->pulls = NULL;
}
