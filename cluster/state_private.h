/* What state.c and state_user.c share. */
#ifndef ND_STATE_PRIVATE_H
#define ND_STATE_PRIVATE_H

#include "cluster/state.h"

/* A command about a user. */
enum nd_outcome_code state_apply_user(struct nd_state *state, const struct nd_command *command,
                                      struct nd_outcome *out);

#endif
