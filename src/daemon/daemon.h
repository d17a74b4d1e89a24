/* The daemon as a value: started, run, stopped in order. */
#ifndef GB_DAEMON_DAEMON_H
#define GB_DAEMON_DAEMON_H

#include <stdbool.h>

#include "api/api.h"
#include "backend/backend.h"
#include "base/closer.h"
#include "base/log.h"
#include "core/core.h"
#include "daemon/cage/seccomp.h"
#include "daemon/listen.h"
#include "daemon/options.h"
#include "daemon/tokens_file.h"
#include "http/http.h"
#include "store/store.h"

/* Exit statuses, by the names of sysexits.h. */
enum gb_exit {
    GB_EXIT_OK = 0,
    GB_EXIT_FINDINGS = 1,  /* of fsck and recover: not all files are sound */
    GB_EXIT_USAGE = 64,    /* an option is unknown or ill-formed */
    GB_EXIT_SOFTWARE = 70, /* something that the options name cannot be had */
    GB_EXIT_DEVICE = 75,   /* the device is lost: start again */
    GB_EXIT_CONFIG = 78    /* the options are well-formed but must not or cannot work */
};

struct gb_daemon_fleet;
struct gb_daemon_pulls;
struct gb_pulls;
struct gb_request_log;

/* What is in force of the cage. */
struct gb_daemon_cage {
    int landlock; /* the version; 0: none */
    enum gb_seccomp seccomp;
    bool privileges; /* given up */
};

/* Zero-initialised with options filled is ready for gb_daemon_start. */
struct gb_daemon {
    struct gb_options options;
    struct gb_log log;
    char *state_dir;
    char *database;
    char *listen_file;
    struct gb_own_file listen_own; /* what this process wrote there */
    char *data_dir;                /* of the bytes of durable buffers; NULL: there is none */
    int lock_fd;                   /* of the database, until the store has it; 0: none */
    struct gb_daemon_cage cage;
    char backend_note[GB_BACKEND_NOTE_SIZE];
    struct gb_backend *backend;
    struct gb_store *store;
    struct gb_disk *disk; /* NULL: as data_dir */
    struct gb_token_store *tokens;
    struct gb_tokens_file tokens_file;
    int64_t token_end_us;  /* when the next token's time is over for all threads; 0: none has an end */
    int64_t token_look_us; /* the wall clock when that was last looked at */
    struct gb_closer *closer;
    struct gb_core *core;
    struct gb_api *api;
    struct gb_request_log *requests;
    struct gb_map_peers map_peers;
    struct gb_default_pools default_pools;
    struct gb_http_bounds bounds;
    struct gb_http_server *server;
    struct gb_daemon_fleet *fleet; /* NULL: it is in none */
    struct gb_daemon_pulls *pulls; /* NULL: nothing is copied from other daemons */
    struct gb_listeners listeners;
    struct gb_tls_context *tls;    /* NULL: no listener is for TLS */
    char tls_seen[17];             /* stands for the files that it was read from */
    uint64_t store_failures;       /* changes that the database refused, as last logged */
    uint64_t audit_failures;       /* records that the audit's file has not taken, as last logged */
    uint64_t audit_log_ns;         /* when that was; 0: not yet */
    uint64_t disk_damaged;         /* blocks with other bytes than their checksums say, as last logged */
    enum gb_disk_state disk_state; /* as last logged */
    bool tokens_due;               /* they have changed, and were not loaded since */
    bool tokens_failed;            /* to load, as last logged */
    bool store_refuses;            /* as last logged */
    bool listen_unwritten;         /* the file listen, as last logged */
    bool unreachable;              /* clients cannot reach a UNIX socket, as last logged */
    bool exposed;                  /* other machines may reach it: never without a token */
    bool proxied;                  /* --trusted-proxy or --proxy-protocol: its clients need not be of this machine */
    bool had_tokens;               /* one was in force since the start */
    bool kernel_tls;               /* the kernel could encrypt records; the daemon does not have it do so */
    bool device_lost;              /* said so in the log */
    int signal_fd;
};

/* Opens everything from the store up to the sockets. Returns GB_EXIT_OK, or another status with *err; what was opened
 * then still needs gb_daemon_done. The signals that the daemon waits for are blocked already. */
enum gb_exit gb_daemon_start(struct gb_daemon *daemon, struct gb_error *err);

/* Serves until a signal or, if so asked, the loss of the device; then ends in order. Returns the exit status. */
enum gb_exit gb_daemon_run(struct gb_daemon *daemon);

/* Closes what is open, top down. Also after a failed start. */
void gb_daemon_done(struct gb_daemon *daemon);

/* Reads the file of --tokens-file if it has changed, or if asked. A file that cannot be read leaves those known as they
 * are. *ret_changed: other tokens are known now. */
int gb_daemon_read_tokens_file(struct gb_daemon *daemon, bool asked, bool *ret_changed, struct gb_error *err);

/* Tokens as they were loaded. */
struct gb_token_count {
    size_t all; /* that have expired included */
    size_t in_force;
    char expired[256]; /* the names of the others, with commas, cut to fit */
};

/* Whether every client is refused while there is no token: by a daemon that is exposed or has a file, and by one behind
 * a proxy whose last token is gone. */
bool gb_daemon_is_closed(const struct gb_daemon *daemon);
/* Reads the tokens of the database again, and puts them and those of the file in force. A token of the file that has
 * the name, the secret or the subject of one of the database stays out, which is logged. */
int gb_daemon_load_tokens(struct gb_daemon *daemon, struct gb_token_count *ret, struct gb_error *err);
/* After the tokens, or the clock, were set: notes when what the next token holds is to end, seen from now_us
 * (gb_tokens_now_us). */
void gb_daemon_note_token_end(struct gb_daemon *daemon, int64_t now_us);
void gb_daemon_log_tokens(const struct gb_daemon *daemon, const struct gb_token_count *count);
/* A disk without room for the file is logged, and is no failure: gb_daemon_check_sockets tries it again. */
int gb_daemon_write_listen(struct gb_daemon *daemon, struct gb_error *err);

/* As many of so many connections as three quarters of the hard limit on open files have room for. */
uint64_t gb_limits_fit(uint64_t connections, unsigned each);
/* Raises the limit on open files so that this many connections fit, or says what to do. *listeners: how many there are
 * to be beside them, and on return how many there can be. each: files of a connection. */
int gb_limits_raise(uint64_t connections, unsigned each, uint64_t *listeners, struct gb_error *err);

/* Whether the kernel offers TLS for sockets (its module tls is loaded). root: "" or where /proc is found. */
bool gb_daemon_kernel_tls(const char *root);

/* The numbers of an option --map-uids or --map-gids. INVALID_ARGUMENT. */
int gb_daemon_read_ids(const struct gb_text_list *words, const char *option, struct gb_id_list *ret,
                       struct gb_error *err);

/* The options --default-pool-threshold and --default-pool-reuse. INVALID_ARGUMENT. */
int gb_daemon_read_default_pools(const struct gb_options *options, struct gb_default_pools *ret, struct gb_error *err);

/* Logs which devices' own pools give memory back, which devices have no pools, and whether pools of sessions are
 * lost. */
void gb_daemon_log_pools(const struct gb_daemon *daemon);

/* The options of the audit. age: 0 for ever. */
enum gb_audit_mode gb_daemon_audit_mode(const struct gb_options *options);
int64_t gb_daemon_audit_age_us(const struct gb_options *options);
/* Logs what the audit's file has not taken, once a minute. */
void gb_daemon_check_audit(struct gb_daemon *daemon);
/* Records a change of a token by a command. A failure is said, and changes nothing. */
void gb_daemon_audit_token(const struct gb_options *options, struct gb_token_store *tokens, enum gb_audit_event event,
                           const char *name, const char *session);
/* Has the process leave no core dump and take no debugger, unless --core-dumps is given. */
void gb_daemon_hide(const struct gb_daemon *daemon);
/* Gives up capabilities and the files that are not needed any more, as the options say. Before the first thread, after
 * the state directory is found and the sockets are open. */
int gb_daemon_enclose(struct gb_daemon *daemon, struct gb_error *err);
/* Gives up system calls, once the backend is open, and logs what is in force. */
int gb_daemon_filter(struct gb_daemon *daemon, struct gb_error *err);

/* Reads certificates and keys, if a listener is for TLS; refuses options that do not go together. */
int gb_daemon_open_tls(struct gb_daemon *daemon, struct gb_error *err);
/* Whether the options of TLS go together. Reads no file. INVALID_ARGUMENT. */
int gb_daemon_check_tls(const struct gb_options *options, struct gb_error *err);
/* The same, and whether the files can be read and fit together. */
int gb_daemon_try_tls(const struct gb_options *options, struct gb_error *err);
/* Reads them again if a file has changed, or asked is set. What cannot be read is logged; what is in force stays. */
void gb_daemon_reload_tls(struct gb_daemon *daemon, bool asked);

/* The options that bound clients, and those that name proxies. INVALID_ARGUMENT. gb_daemon_free_bounds is due either
 * way. */
int gb_daemon_read_bounds(const struct gb_options *options, struct gb_http_bounds *ret, struct gb_error *err);
void gb_daemon_free_bounds(struct gb_http_bounds *bounds);
/* Refuses an option --host-name that no Host could equal. INVALID_ARGUMENT. */
int gb_daemon_check_host_names(const struct gb_options *options, struct gb_error *err);
/* What is wrong with the name host[0..n), of letters that a host has: static text; NULL: nothing. */
const char *gb_daemon_host_fault(const char *host, size_t n);
/* Refuses an option --cors-origin that no Origin of a browser could equal, and those that any page could have.
 * INVALID_ARGUMENT. */
int gb_daemon_check_origins(const struct gb_options *options, struct gb_error *err);

/* Reads the options of the fleet, before anything is opened. daemon->fleet stays NULL without --fleet.
 * INVALID_ARGUMENT. */
int gb_daemon_read_fleet(struct gb_daemon *daemon, struct gb_error *err);
/* Joins it, when the sockets are open and the API is there. INVALID_ARGUMENT. */
int gb_daemon_open_fleet(struct gb_daemon *daemon, struct gb_error *err);
/* The names accepted in Host: --host-name, and those of --advertise. */
const char *const *gb_daemon_hosts(const struct gb_daemon *daemon, size_t *ret_count);
/* Logs what has become of it since the last call, as is done when it changes. */
void gb_daemon_check_fleet(struct gb_daemon *daemon);
/* It stops: no session is placed here any more. */
void gb_daemon_drain_fleet(struct gb_daemon *daemon);
/* Gives up what is brought here from other nodes, when the server has stopped. Before the pulls are closed. */
void gb_daemon_close_moves(struct gb_daemon *daemon);
/* Leaves it, when the server has stopped. */
void gb_daemon_close_fleet(struct gb_daemon *daemon);

/* Reads from where buffers may be copied, before anything is opened. daemon->pulls stays NULL if from nowhere.
 * INVALID_ARGUMENT. */
int gb_daemon_read_pulls(struct gb_daemon *daemon, struct gb_error *err);
int gb_daemon_open_pulls(struct gb_daemon *daemon, struct gb_error *err);
struct gb_pulls *gb_daemon_pulls_of(const struct gb_daemon *daemon); /* NULL: there are none */
/* Gives up those that run, when the server has stopped. */
void gb_daemon_close_pulls(struct gb_daemon *daemon);

/* Opens all sockets that the options and systemd name. */
int gb_daemon_listen(struct gb_daemon *daemon, struct gb_error *err);
/* Makes UNIX sockets whose file is gone, and the file listen, again, and logs that; as long as it cannot, the daemon is
 * not ready. What systemd made is its own to make again. */
void gb_daemon_check_sockets(struct gb_daemon *daemon);

/* `gpubufd token ...`: argv[0] is "token". Returns the exit status; errors go to standard error. */
enum gb_exit gb_token_command(struct gb_options *options, int argc, char **argv);

/* `gpubufd tls ...`: argv[0] is "tls". As gb_token_command. */
enum gb_exit gb_tls_command(struct gb_options *options, int argc, char **argv);

/* `gpubufd fsck ...` and `gpubufd recover ...`, which look at stored bytes. As gb_token_command. */
enum gb_exit gb_fsck_command(struct gb_options *options, int argc, char **argv);
enum gb_exit gb_recover_command(struct gb_options *options, int argc, char **argv);

/* `gpubufd check FILE`: argv[0] is "check". As gb_token_command. */
enum gb_exit gb_check_command(struct gb_options *options, int argc, char **argv);

/* Prints an error of the options with what is permitted. Returns GB_EXIT_USAGE. */
enum gb_exit gb_usage_error(const struct gb_error *err);

#endif
