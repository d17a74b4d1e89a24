/* What an upload reads: a file, or a pipe whose length only its content can tell. */
#ifndef GB_CLI_SOURCE_H
#define GB_CLI_SOURCE_H

#include "cli/cli.h"

#define GB_CLI_PEEK 16

struct gb_cli_source {
    struct gb_cli *cli;
    int fd;
    double until;                     /* while it is being opened: when to give up; 0: never */
    bool pipe;                        /* read through gb_cli_source_read, front first */
    bool device;                      /* of characters: a terminal, or what may have no end */
    unsigned char front[GB_CLI_PEEK]; /* read already, to see what comes */
    size_t front_bytes;
    size_t front_at;
    uint64_t bytes; /* GPUBUF_UNKNOWN: what comes tells it itself */
};

/* Opens path, - for standard input. A pipe of raw bytes whose length nothing tells goes to a temporary file first, which has
 * no name; knows_length: the caller gave a shape or a slice. expected: the bytes that the shape makes, GPUBUF_UNKNOWN where
 * nobody knows: of a device that may have no end (/dev/zero) so many are read, of a pipe all that come. 0, or the exit
 * status of what was said. */
int gb_cli_source_open(struct gb_cli *cli, const char *path, bool knows_length, uint64_t expected,
                       struct gb_cli_source *ret);
void gb_cli_source_close(struct gb_cli_source *source);

/* For the library. */
struct gpubuf_source gb_cli_source_of(struct gb_cli_source *source);

#endif
