/* Where a download goes: a file that appears when all of it is there, or what is open already. */
#ifndef GB_CLI_SINK_H
#define GB_CLI_SINK_H

#include "cli/cli.h"

struct gb_cli_sink {
    const struct gb_cli *cli;
    int fd;
    bool given;      /* to a pipe: bytes that cannot be taken back */
    bool seeks;      /* bytes may come in any order */
    char *path;      /* of the finished file; NULL where there is none to be named */
    char *temporary; /* its name until then */
    bool unnamed;    /* temporary is the pattern of a name that it has not got */
};

/* 0, or the exit status of what was said. */
int gb_cli_sink_open(struct gb_cli *cli, const char *path, struct gb_cli_sink *ret);
/* Names the file when good, takes what there is of it away otherwise. 0, or the exit status of what was said. */
int gb_cli_sink_close(struct gb_cli *cli, struct gb_cli_sink *sink, bool good);

/* It holds on to the sink. */
/* Warns on standard error if the path ends as an archive or a pickle and the bytes that came are none, unless --raw or
 * --quiet is given. Before gb_cli_sink_close(). */
void gb_cli_warn_no_archive(const struct gb_cli *cli, const struct gb_cli_sink *sink, const char *path);

struct gpubuf_target gb_cli_target_of(struct gb_cli_sink *sink);

#endif
