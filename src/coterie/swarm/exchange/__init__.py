"""Where nodes publish and draw rollouts."""
