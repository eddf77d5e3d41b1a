"""Messages with a delivery delay: where they wait, and how they reach their destination."""
