/* The hosts of --hosts. */
#ifndef GB_CLI_HOSTS_H
#define GB_CLI_HOSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define GB_CLI_HOST_OUTPUT (16 * 1024 * 1024) /* bytes of each of a host's two outputs that are kept */

struct gb_cli_section;

struct gb_cli_text {
    char *data; /* NUL-terminated */
    size_t bytes;
    bool cut;
};

struct gb_cli_host {
    char *name; /* as it stands in the list */
    char *url;
    const struct gb_cli_section *section; /* of the configuration file, which has a host of that name; NULL: not */
    pid_t pid;                            /* 0: not started */
    int fds[2];                           /* its standard output and error, -1 when at the end */
    struct gb_cli_text out[2];            /* what came from them */
    double end;                           /* it is killed then */
    bool timed_out;
    bool ended;
    int status;
};

struct gb_cli_hosts {
    struct gb_cli_host *items;
    size_t count;
};

/* Reads a list, "a,b:7071,http://c:80,unix:///s", or the file of that name, a host a line. -1 when it cannot be read;
 * *ret_why says why. 0 hosts are no error here. */
int gb_cli_hosts_read(const char *text, struct gb_cli_hosts *ret, const char **ret_why);
void gb_cli_hosts_done(struct gb_cli_hosts *hosts);

#endif
