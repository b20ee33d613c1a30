"""The paper: a mixture over co-clusters, learned by annealed EM."""
