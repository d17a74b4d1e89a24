/* The texts that the JSON gateway of etcd takes and gives. Pure: no connection, no clock.
 *
 * Keys and values are base64, numbers of 64 bits are texts, and a member that has its default value is left out. Keys
 * are read and changed by transactions alone, whose first range or comparison is that of the fleet's own record. */
#ifndef GB_FLEET_MESSAGES_H
#define GB_FLEET_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json_writer.h"

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* A transaction under construction: comparisons, then operations of success, then those of failure. Zero-initialised
 * is empty. */
struct gb_txn {
    struct gb_json_writer out;
    char list; /* 'c', 's', 'f': the one that is open; NUL: none yet */
};

enum gb_txn_target { GB_TXN_CREATED, GB_TXN_MODIFIED };

/* The key's revision of that kind is this one; 0: there is no such key. */
void gb_txn_compare(struct gb_txn *txn, enum gb_txn_target target, const char *key, int64_t revision);
/* There is such a key. */
void gb_txn_compare_there(struct gb_txn *txn, const char *key);
/* What follows is done if a comparison fails; what stood before, if none does. */
void gb_txn_else(struct gb_txn *txn);

struct gb_txn_range {
    const char *key;
    bool after;        /* from the key behind that one */
    const char *end;   /* NULL: one key */
    size_t limit;      /* 0: none */
    int64_t revision;  /* 0: the newest */
    bool serializable; /* by the member that is asked alone */
    bool keys_only;
};
void gb_txn_get(struct gb_txn *txn, const struct gb_txn_range *range);
void gb_txn_put(struct gb_txn *txn, const char *key, const char *value, int64_t lease); /* lease 0: none */
void gb_txn_delete(struct gb_txn *txn, const char *key);
void gb_txn_delete_below(struct gb_txn *txn, const char *prefix); /* all keys that begin with it; it ends with '/' */
/* The end of the keys that begin with the prefix, which ends with '/'. */
void gb_prefix_end(const char *prefix, char *ret, size_t size);
/* The request, which the caller frees; NULL when memory was exhausted. The transaction is empty again. */
char *gb_txn_finish(struct gb_txn *txn);

/* The caller frees; NULL when memory is exhausted. */
char *gb_lease_grant_text(int64_t id, unsigned ttl_s);
char *gb_lease_text(int64_t id, bool keys); /* of the other requests; keys: asks for them */

/* --- answers ------------------------------------------------------------------------------------------------------ */

struct gb_kv {
    char *key;
    char *value; /* NUL-terminated */
    size_t bytes;
    int64_t create_revision;
    int64_t mod_revision;
};

struct gb_kvs {
    struct gb_kv *items;
    size_t count;
    bool more;
};

struct gb_txn_answer {
    uint64_t cluster_id;
    int64_t revision;
    uint64_t term; /* of the leader; 0: it is not told */
    bool succeeded;
    struct gb_kvs *results; /* one for each operation of the branch that was taken; empty for puts and deletes */
    size_t count;
};

struct gb_lease_answer {
    uint64_t cluster_id;
    int64_t ttl_s; /* -1, or 0 of keepalive: there is no such lease */
    int64_t granted_s;
    char **keys;
    size_t key_count;
};

/* Each returns 0, or -1 with DIRECTORY_UNAVAILABLE for what is no such answer; *ret is empty then. An answer is freed
 * with its done, which accepts a zeroed one. */
int gb_txn_read(const char *text, size_t n, struct gb_txn_answer *ret, struct gb_error *err);
void gb_txn_answer_done(struct gb_txn_answer *answer);
/* Of grant, keepalive, timetolive and revoke. */
int gb_lease_read(const char *text, size_t n, struct gb_lease_answer *ret, struct gb_error *err);
void gb_lease_answer_done(struct gb_lease_answer *answer);

/* The number of an error, 0 if it has none; its text, cut, in ret_text. */
int gb_refusal_read(const char *text, size_t n, char *ret_text, size_t size);

/* The result at that index, or an empty one. */
const struct gb_kvs *gb_txn_result(const struct gb_txn_answer *answer, size_t index);

#endif
