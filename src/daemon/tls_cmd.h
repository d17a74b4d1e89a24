/* `gpubufd tls`: the files of a private authority. */
#ifndef GB_DAEMON_TLS_CMD_H
#define GB_DAEMON_TLS_CMD_H

#include <stdint.h>

#include "base/error.h"
#include "tls/names.h"
#include "tls/pair.h"

/* What the command line says. */
struct gb_tls_command {
    const char *words[2]; /* "client" and NAME, "show" and FILE */
    size_t count;
    char *dir; /* malloc'd */
    uint32_t days;
    struct gb_tls_names names;
    const char *client; /* of init; NULL: none */
};

/* Paths below a folder, each malloc'd. */
struct gb_tls_paths {
    char *authority_folder; /* of the key, for its owner alone */
    char *authority_key;
    char *authority;
    char *server_key;
    char *server;
    char *clients;
};

int gb_tls_paths_init(struct gb_tls_paths *paths, const char *dir, struct gb_error *err);
void gb_tls_paths_done(struct gb_tls_paths *paths);

/* Each makes files and says which; none is overwritten. */
int gb_tls_init(const struct gb_tls_command *command, struct gb_error *err);
int gb_tls_client(const struct gb_tls_command *command, struct gb_error *err);
/* Makes the server's certificate again, with the key that it has. */
int gb_tls_renew(const struct gb_tls_command *command, struct gb_error *err);

#endif
