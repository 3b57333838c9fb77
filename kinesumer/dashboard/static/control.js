// Changes: only where the server takes them, and only with the token from its link.

/** Fill a place with the buttons of what can be done to something. */
export function actions(place, state, wanted, name) {
  void place, state, wanted, name;
}
