/* The records of the directory as JSON texts. Pure. A record that another node wrote may be any text; one that is not
 * as it should be is an error. Members that are not known are kept when a record is written again. */
#ifndef GB_FLEET_RECORDS_H
#define GB_FLEET_RECORDS_H

#include "fleet/fleet.h"

#define GB_FLEET_NODE_RECORD_MAX 4096
#define GB_FLEET_SESSION_RECORD_MAX 4096

/* What alive/N says. */
struct gb_fleet_alive {
    uint64_t uuid;
    uint64_t incarnation;
    bool draining;
    uint64_t free_bytes[GB_FLEET_DEVICES_MAX];
    uint64_t committed_bytes[GB_FLEET_DEVICES_MAX];
    size_t count;
};

/* Reading gives 0, or -1 with DIRECTORY_UNAVAILABLE and *ret zeroed but for the name. Names are of the keys: the caller
 * sets them. Writing gives a text that the caller frees, or NULL with INVALID_ARGUMENT (it is too long) or SATURATED.
 * old: the record that is there, or NULL. */
int gb_fleet_node_read(const char *text, size_t n, struct gb_fleet_node *ret, struct gb_error *err);
char *gb_fleet_node_write(const struct gb_fleet_node *node, const char *old, struct gb_error *err);
int gb_fleet_alive_read(const char *text, size_t n, struct gb_fleet_alive *ret, struct gb_error *err);
char *gb_fleet_alive_write(const struct gb_fleet_alive *alive, const char *old, struct gb_error *err);
int gb_fleet_session_read(const char *text, size_t n, struct gb_fleet_session *ret, struct gb_error *err);
/* Writes a tombstone if session->deleted. */
char *gb_fleet_session_write(const struct gb_fleet_session *session, struct gb_error *err);

/* Of quota/T: sets the limit. */
int gb_fleet_tenant_read(const char *text, size_t n, struct gb_fleet_tenant *ret, struct gb_error *err);
char *gb_fleet_tenant_write(uint64_t limit_bytes);

/* Of ctl/N/ID: what N is to do. session "": of none. NULL: no memory. */
char *gb_fleet_order_write(const char *what, const struct gb_name *session);
bool gb_fleet_order_read(const char *text, size_t n, char *ret_what, size_t size, struct gb_name *ret_session);

/* Adds what alive/N says to the node. */
void gb_fleet_node_set_alive(struct gb_fleet_node *node, const struct gb_fleet_alive *alive);

/* The member "uuid" of meta. Returns 0, or -1 with DIRECTORY_UNAVAILABLE. */
int gb_fleet_meta_read(const char *text, size_t n, char ret_uuid[40], struct gb_error *err);
/* Of keys/KID. made_s: seconds since the epoch, by the directory's clock. */
int gb_fleet_key_read(const char *text, size_t n, unsigned char ret_key[32], int64_t *ret_made_s);
char *gb_fleet_key_write(const unsigned char key[32], int64_t made_s);

/* Whether the text can be the URL of a node: http or https, a host, no user, query or fragment, and no byte that would
 * end a header. */
bool gb_fleet_url_is_valid(const char *url);
/* Whether it is a JSON object of texts that fits into GB_FLEET_LABELS_SIZE. */
bool gb_fleet_labels_are_valid(const char *labels);
/* Whether labels have all members of select, which is an object too; "": none. */
bool gb_fleet_labels_match(const char *labels, const char *select);

#endif
