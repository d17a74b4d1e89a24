/* Transfers between files and buffers, with progress. */
#ifndef GB_CLI_FILES_H
#define GB_CLI_FILES_H

#include "cli/cli.h"

/* Whether text is meant as a file where a buffer could stand as well: -, /FILE, ./FILE, ../FILE or file:FILE. */
bool gb_cli_is_file(const char *text);

/* Uploads; path - is standard input, name NULL takes the name from the path. Exit statuses. */
int gb_cli_put_file(struct gb_cli *cli, const char *path, const char *name);

/* Warns on standard error if the path ends as an archive or a pickle and the bytes that came, of the file fd, are not
 * one, unless --raw or --quiet is given. fd -1: the bytes cannot be read. */
void gb_cli_warn_no_archive(const struct gb_cli *cli, int fd, const char *path);

/* get CHECKPOINT DIR, put DIR: copies the folder of a checkpoint. The exit status. */
int gb_cli_copy_folder(struct gb_cli *cli, int argc, char **argv);

bool gb_cli_ends_in(const char *text, const char *end);

#endif
