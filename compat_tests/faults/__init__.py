"""How stock clients behave while a broker misbehaves on purpose."""
