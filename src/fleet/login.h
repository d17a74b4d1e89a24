/* A user of etcd, where that asks for one: the token that calls carry, and logging in when it is not good any more. All
 * on the thread of the calls. */
#ifndef GB_FLEET_LOGIN_H
#define GB_FLEET_LOGIN_H

#include "base/error.h"
#include "curl/request.h"
#include "fleet/timer.h"

struct gb_etcd;
struct gb_etcd_call;

struct gb_etcd_login {
    char *body;                   /* of the request; NULL: etcd asks for none */
    char *header;                 /* "Authorization: TOKEN"; NULL: none yet, or it is not good any more */
    unsigned header_number;       /* of it; none has 0 */
    struct gb_etcd_call *waiting; /* calls that go on when there is one */
    bool open;
    size_t endpoint;
    uint64_t again_ms; /* before it no other try begins */
    char url[320];
    struct gb_http_ask ask;
    struct gb_timer timer;
};

/* user: "NAME:PASSWORD". Returns 0, or -1 with INVALID_ARGUMENT or INTERNAL. */
int gb_etcd_login_init(struct gb_etcd_login *login, const char *user, struct gb_error *err);
void gb_etcd_login_done(struct gb_etcd_login *login);

/* The call goes on, or fails, when there is an answer. */
void gb_etcd_login_wait(struct gb_etcd *etcd, struct gb_etcd_call *call);
/* It does neither. One that does not wait is accepted. */
void gb_etcd_login_leave(struct gb_etcd *etcd, struct gb_etcd_call *call);
/* Whether an answer says that the token is not good any more. */
bool gb_etcd_login_is_over(int status, const char *text, size_t n);
/* It is not, as the call has found. */
void gb_etcd_login_drop(struct gb_etcd *etcd, const struct gb_etcd_call *call);

#endif
