/* Transfers between files and buffers, with progress, and copies that the daemon brings (sources.c). */
#ifndef GB_CLI_FILES_H
#define GB_CLI_FILES_H

#include "cli/cli.h"

/* Whether text is meant as a file where a buffer could stand as well: -, /FILE, ./FILE, ../FILE or file:FILE. */
bool gb_cli_is_file(const char *text);

/* Uploads; path - is standard input, name NULL takes the name from the path. Exit statuses. */
int gb_cli_put_file(struct gb_cli *cli, const char *path, const char *name);

/* What the options say of an upload. */
void gb_cli_put_params(const struct gb_cli_options *options, struct gpubuf_put_params *ret);

/* Warns on standard error if the path ends as an archive or a pickle and the bytes that came, of the file fd, are not
 * one, unless --raw or --quiet is given. fd -1: the bytes cannot be read. */
void gb_cli_warn_no_archive(const struct gb_cli *cli, int fd, const char *path);

/* get CHECKPOINT DIR, put DIR: copies the folder of a checkpoint. The exit status. */
int gb_cli_copy_folder(struct gb_cli *cli, int argc, char **argv);

/* Whether it is http[s]://..., or daemon:PATH, a file of the daemon's machine. */
bool gb_cli_is_source(const char *text);
bool gb_cli_is_url(const char *text);
/* Has the daemon copy it into the buffer. The exit status. */
int gb_cli_copy_source(struct gb_cli *cli, const char *source, const char *target);
/* --if-match, as that member. 0, or -1 with cli->error. */
int gb_cli_put_tag(struct gb_cli *cli, json_t *into, const char *key);

bool gb_cli_ends_in(const char *text, const char *end);
bool gb_cli_is_folder(const char *path);

/* "DIR/FILE", malloc'd; NULL: no memory. */
char *gb_cli_path_in(const char *folder, const char *file);

/* --- where a download goes ---------------------------------------------------------------------------------------- */

struct gb_cli_sink {
    const struct gb_cli *cli;
    int fd;
    bool given;      /* to a pipe: bytes that cannot be taken back */
    bool seeks;      /* bytes may come in any order */
    char *path;      /* of the finished file; NULL: it has no path */
    char *temporary; /* its name until then */
    bool unnamed;    /* temporary is the pattern of a name that it has not got */
};

/* path NULL or -: standard output. 0, or the exit status of what was said. */
int gb_cli_sink_open(struct gb_cli *cli, const char *path, struct gb_cli_sink *ret);

/* Names the file when good, takes what there is of it away otherwise. 0, or the exit status of what was said. */
int gb_cli_sink_close(struct gb_cli *cli, struct gb_cli_sink *sink, bool good);

/* It holds on to the sink. */
struct gpubuf_target gb_cli_sink_target(struct gb_cli_sink *sink);

/* A gpubuf_progress_fn; arg: the struct gb_cli_progress. */
int gb_cli_moved(void *arg, uint64_t done, uint64_t total);

/* Says that a download failed, from cli->error. The exit status. */
int gb_cli_sink_failed(struct gb_cli *cli, const char *path);

#endif
