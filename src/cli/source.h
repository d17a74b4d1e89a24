/* What an upload reads: a file, or a pipe whose length only its content can tell. */
#ifndef GB_CLI_SOURCE_H
#define GB_CLI_SOURCE_H

#include "cli/cli.h"

struct gb_cli_source {
    struct gb_cli *cli;
    int fd;
    double until;         /* while it is being opened: when to give up; 0: never */
    bool pipe;            /* read front first */
    bool whole;           /* of a pipe: it ended within front, which is all of it */
    bool taken;           /* of a pipe: bytes that cannot be given again */
    bool device;          /* of characters: a terminal, or what may have no end */
    unsigned char *front; /* of a pipe: what was read already, malloc'd */
    size_t front_bytes;
    size_t front_at;
    uint64_t bytes; /* GPUBUF_UNKNOWN: what comes tells it itself */
};

/* Opens path, - for standard input. A pipe that ends within its first MiB is read whole, so that its length is known;
 * of a longer one the length stays unknown. Neither is waited for with --in-place or if knows_length: the caller gave a
 * shape or a slice. Raw bytes of a device without these go to an unnamed temporary file first. expected: the bytes that
 * the shape makes, GPUBUF_UNKNOWN if unknown. From a device without an end (/dev/zero) that many are read, from a pipe
 * all of them. Returns 0, or the exit status of the error that was printed. */
int gb_cli_source_open(struct gb_cli *cli, const char *path, bool knows_length, uint64_t expected,
                       struct gb_cli_source *ret);
void gb_cli_source_close(struct gb_cli_source *source);

/* Warns on standard error if the file holds tensors in a form that is stored as bytes, unless --raw or --quiet is
 * given. Returns whether it did. */
bool gb_cli_warn_archive(const struct gb_cli *cli, const struct gb_cli_source *source, const char *path);

/* For the library. */
struct gpubuf_source gb_cli_source_of(struct gb_cli_source *source);

#endif
